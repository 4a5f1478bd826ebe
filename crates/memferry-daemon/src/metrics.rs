// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenMetrics over HTTP on a port or a Unix socket: whatever is asked for, the answer is the metrics.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::config::Listen;
use crate::error::{DaemonError, file};
use crate::status::{GroupStatus, NodeStatus, Status};

/// What metrics are made from.
pub(crate) type Shared = Arc<Mutex<Status>>;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<f64, AtomicU64>>;

/// A scraper that says nothing, or has not asked, for so long is gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries to accept a scraper: they fail while the process has no descriptor left.
const NEXT_ACCEPT: Duration = Duration::from_millis(100);

/// The metrics of one answer.
struct Sheet(Registry);

impl Sheet {
    fn gauges(&mut self, name: &str, help: &str, unit: &str, rows: Vec<(Labels, f64)>) {
        let family = Gauges::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        self.register(name, help, unit, family);
    }

    fn gauge(&mut self, name: &str, help: &str, unit: &str, value: f64) {
        self.gauges(name, help, unit, vec![(Labels::new(), value)]);
    }

    fn counters(&mut self, name: &str, help: &str, unit: &str, rows: Vec<(Labels, f64)>) {
        let family = Counters::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).inc_by(value);
        }
        self.register(name, help, unit, family);
    }

    fn register(&mut self, name: &str, help: &str, unit: &str, metric: impl Metric) {
        match unit {
            "" => self.0.register(name, help, metric),
            unit => {
                let unit = Unit::Other(unit.to_owned());
                self.0.register_with_unit(name, help, unit, metric);
            }
        }
    }
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

/// The metrics of a status as OpenMetrics.
///
/// # Errors
/// None that a string gives.
pub fn text(status: &Status) -> Result<String, fmt::Error> {
    let mut sheet = Sheet(Registry::with_prefix("memferry"));
    groups(&mut sheet, &status.groups);
    machine(&mut sheet, status);
    daemon(&mut sheet, status);
    let mut text = String::new();
    encode(&mut text, &sheet.0)?;
    Ok(text)
}

fn groups(sheet: &mut Sheet, groups: &[GroupStatus]) {
    type Get = fn(&GroupStatus) -> Option<u64>;
    let gauges: [(&str, &str, &str, Get); 7] = [
        ("resident", "Memory that may move", "bytes", |of| {
            Some(of.resident)
        }),
        ("top", "Memory in the top tier", "bytes", |of| Some(of.top)),
        ("hot", "Memory seen in use", "bytes", |of| Some(of.hot)),
        ("share", "Share of the top tier", "bytes", |of| {
            Some(of.share)
        }),
        ("protect", "Protected of the top tier", "bytes", |of| {
            Some(of.protect)
        }),
        ("limit", "Limit in the top tier", "bytes", |of| of.limit),
        ("processes", "Processes", "", |of| Some(of.processes)),
    ];
    for (name, help, unit, get) in gauges {
        let rows = groups
            .iter()
            .filter_map(|of| Some((label("group", &of.name), get(of)? as f64)));
        sheet.gauges(&format!("group_{name}"), help, unit, rows.collect());
    }
    let used = groups.iter().flat_map(|of| {
        let ages = of.used_within.iter().flat_map(|used| used.by_age());
        ages.map(|(within, bytes)| {
            let labels = [label("group", &of.name), label("within", within)];
            (labels.concat(), bytes as f64)
        })
    });
    let help = "Memory by when it was last seen in use, with all that was used later";
    sheet.gauges("group_used", help, "bytes", used.collect());
    let unmovable = groups.iter().flat_map(|of| {
        of.unmovable.iter().map(|(reason, bytes)| {
            let labels = [label("group", &of.name), label("reason", reason)];
            (labels.concat(), *bytes as f64)
        })
    });
    let help = "Memory in page tables that cannot be moved: hugetlb, locked, bound by a policy, of a device, shared with others than the group, \
                or copies that several processes have, which count once for each";
    sheet.gauges("group_unmovable", help, "bytes", unmovable.collect());
    let (mut moved, mut stayed, mut regretted) = (Vec::new(), Vec::new(), Vec::new());
    for of in groups {
        for (outcome, direction, bytes) in [
            ("promoted", "up", of.promoted),
            ("demoted", "down", of.demoted),
            ("stayed", "none", of.stayed),
        ] {
            let labels = [
                label("group", &of.name),
                label("outcome", outcome),
                label("direction", direction),
            ];
            moved.push((labels.concat(), bytes as f64));
        }
        for (reason, bytes) in &of.stayed_reasons {
            let labels = [label("group", &of.name), label("reason", reason)];
            stayed.push((labels.concat(), *bytes as f64));
        }
        for (reason, bytes) in [("waste", of.wasted), ("thrash", of.thrashed)] {
            let labels = [label("group", &of.name), label("reason", reason)];
            regretted.push((labels.concat(), bytes as f64));
        }
    }
    let help = "Memory that the daemon chose, by what became of it";
    sheet.counters("moved", help, "bytes", moved);
    let help = "Memory that the daemon chose and that did not move";
    sheet.counters("stayed", help, "bytes", stayed);
    sheet.counters("regretted", "Moves that did not pay", "bytes", regretted);
    let rates = groups.iter().flat_map(|of| {
        let reasons = [("thrash", Some(of.rate)), ("pressure", of.pressure_rate)];
        reasons.into_iter().filter_map(|(reason, rate)| {
            let labels = [label("group", &of.name), label("reason", reason)];
            Some((labels.concat(), rate? as f64 / 1000.0))
        })
    });
    let help = "What thrash and pressure in its own cgroups leave of a group's rate";
    sheet.gauges("group_rate", help, "ratio", rates.collect());
}

fn machine(sheet: &mut Sheet, status: &Status) {
    type Get = fn(&NodeStatus) -> u64;
    let gauges: [(&str, &str, Get); 2] = [
        ("tier_free", "Free memory", |of| of.free),
        ("tier_size", "Memory", |of| of.size),
    ];
    for (name, help, get) in gauges {
        let rows = ["top", "lower"].into_iter().zip(&status.tiers);
        let rows = rows.flat_map(|(tier, of)| {
            let labels =
                |of: &NodeStatus| [label("tier", tier), label("node", &of.node.to_string())];
            of.nodes
                .iter()
                .map(move |of| (labels(of).concat(), get(of) as f64))
        });
        sheet.gauges(name, help, "bytes", rows.collect());
    }
    let pressures = [
        ("memory", status.memory_pressure),
        ("cpu", status.cpu_pressure),
    ];
    let rows = pressures
        .into_iter()
        .filter_map(|(of, percent)| Some((label("resource", of), percent? / 100.0)));
    let help = "Share of the last ten seconds in which somebody waited";
    sheet.gauges("pressure", help, "ratio", rows.collect());
    let kernel = [
        ("up", status.kernel_promoted),
        ("down", status.kernel_demoted),
    ];
    let rows = kernel
        .into_iter()
        .filter_map(|(direction, bytes)| Some((label("direction", direction), bytes? as f64)));
    let help = "Memory that the kernel moved since boot";
    sheet.counters("kernel_moved", help, "bytes", rows.collect());
}

fn daemon(sheet: &mut Sheet, status: &Status) {
    let source = &status.source;
    let info = (label("version", env!("CARGO_PKG_VERSION")), 1.0);
    sheet.gauges("build_info", "The daemon's version", "", vec![info]);
    let help = "Whether pages move and settings change, or the daemon only watches";
    sheet.gauge("act", help, "", f64::from(u8::from(status.act)));
    let info = (label("source", &source.name), 1.0);
    sheet.gauges("source_info", "What reports heat", "", vec![info]);
    let help = "Processes that the source watches";
    sheet.gauge("source_processes", help, "", source.watched as f64);
    let budget = source
        .cpu_budget
        .map(|percent| (Labels::new(), f64::from(percent) / 100.0));
    let help = "Share of one CPU that the source may take";
    sheet.gauges("source_budget", help, "ratio", budget.into_iter().collect());
    let regions = source.regions.map(|count| (Labels::new(), count as f64));
    let help = "Pieces of memory at most that DAMON tells apart";
    sheet.gauges("source_regions", help, "", regions.into_iter().collect());
    let of_source = source
        .cpu_seconds
        .map(|seconds| (label("part", &source.name), seconds));
    let samples = source.samples.iter().flat_map(|of| {
        let counts = [("taken", of.taken), ("lost", of.lost)];
        counts.map(|(outcome, count)| (label("outcome", outcome), count as f64))
    });
    let help = "Samples of the source, of all processes";
    sheet.counters("samples", help, "", samples.collect());
    let own = (label("part", "daemon"), status.cpu_seconds);
    let rows = [own].into_iter().chain(of_source).collect();
    let help = "CPU time of the daemon and its source";
    sheet.counters("cpu", help, "seconds", rows);
    let help = "Resident memory of the daemon";
    sheet.gauge("daemon_resident", help, "bytes", status.resident as f64);
    let rounds = vec![(Labels::new(), status.rounds as f64)];
    sheet.counters("rounds", "Rounds", "", rounds);
    sheet.gauge(
        "round",
        "What the last round took",
        "seconds",
        status.round_seconds,
    );
    let chosen = [("up", status.chosen_up), ("down", status.chosen_down)];
    let rows = chosen.map(|(direction, bytes)| (label("direction", direction), bytes as f64));
    let help = "Memory that the last round chose, moved or not";
    sheet.gauges("chosen", help, "bytes", rows.to_vec());
    let help = "What may go up in a second now";
    sheet.gauge(
        "promotion",
        help,
        "bytes_per_second",
        status.bytes_per_second as f64,
    );
    let rates = [
        ("waste", status.waste_rate),
        ("pressure", status.pressure_rate),
    ];
    let rows = rates.map(|(reason, rate)| (label("reason", reason), rate as f64 / 1000.0));
    let help = "What brakes leave of the rate";
    sheet.gauges("rate", help, "ratio", rows.to_vec());
    let errors = [
        ("reload", status.refused_reloads),
        ("round", status.errors),
        ("history", status.history_errors),
    ];
    let rows = errors.map(|(reason, count)| (label("reason", reason), count as f64));
    let help = "Configurations that were refused, what failed in rounds, and records of the history that were not kept";
    sheet.counters("errors", help, "", rows.to_vec());
    let help = "Whether the last reload was refused: the configuration before it holds";
    let refused = f64::from(u8::from(status.reload_refused));
    sheet.gauge("reload_refused", help, "", refused);
}

/// What a scraper says that takes OpenMetrics, as Prometheus does.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// The same in Prometheus's older text format, which curl, promtool and older agents read: there the names of counters end in
/// `_total` in comments too.
fn plain(text: &str) -> String {
    let counters: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut plain = String::new();
    for line in text.lines() {
        let comment = line.strip_prefix("# ").map(|rest| rest.splitn(3, ' '));
        let parts: Vec<&str> = comment.into_iter().flatten().collect();
        match parts[..] {
            ["UNIT", ..] | ["EOF"] => continue,
            [what, name, rest] if counters.contains(&name) => {
                plain += &format!("# {what} {name}_total {rest}");
            }
            _ => plain += line,
        }
        plain.push('\n');
    }
    plain
}

/// Serves them from a thread of its own, as long as the process lives. Returns the address.
pub(crate) fn serve(listen: &Listen, shared: Shared) -> Result<String, DaemonError> {
    match listen {
        Listen::Tcp(address) => {
            let failed = || PathBuf::from(address.to_string());
            let listener = TcpListener::bind(address).map_err(file(failed(), "listen there"))?;
            let address = listener
                .local_addr()
                .map_err(file(failed(), "listen there"))?;
            spawn(move || answer_each(listener.incoming(), &shared))?;
            Ok(address.to_string())
        }
        Listen::Unix(path) => {
            let is_socket = fs::symlink_metadata(path).is_ok_and(|of| of.file_type().is_socket());
            if is_socket {
                fs::remove_file(path).map_err(file(path, "replace the socket"))?;
            }
            let listener = UnixListener::bind(path).map_err(file(path, "listen there"))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o660))
                .map_err(file(path, "listen there"))?;
            spawn(move || answer_each(listener.incoming(), &shared))?;
            Ok(format!("unix:{}", path.display()))
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread
        .spawn(work)
        .map(drop)
        .map_err(file("metrics", "start the thread"))
}

/// Answers one scraper after the other. One that has gone asks again.
fn answer_each<S: Read + Write + AsFd>(
    streams: impl Iterator<Item = io::Result<S>>,
    shared: &Shared,
) {
    for stream in streams {
        match stream {
            Ok(stream) => {
                let limit = |way| set_socket_timeout(&stream, way, Some(PATIENCE));
                let limited = limit(Timeout::Recv).and_then(|()| limit(Timeout::Send));
                let _ = limited
                    .map_err(io::Error::from)
                    .and_then(|()| answer(stream, shared));
            }
            // Without a descriptor the scraper stays in the queue, and the next call fails as well.
            Err(_) => std::thread::sleep(NEXT_ACCEPT),
        }
    }
}

fn answer(mut stream: impl Read + Write, shared: &Shared) -> io::Result<()> {
    // The request ends with an empty line; only the form that it accepts matters.
    let (mut head, mut part, came) = (Vec::new(), [0; 512], Instant::now());
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            _ if head.len() > 8 << 10 || came.elapsed() > PATIENCE => return Ok(()),
            got => head.extend_from_slice(&part[..got]),
        }
    }
    let status = shared
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let body = text(&status).map_err(io::Error::other)?;
    let asked = String::from_utf8_lossy(&head).to_lowercase();
    let (kind, body) = match asked.contains(OPEN_METRICS) {
        true => (
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            body,
        ),
        false => ("text/plain; version=0.0.4; charset=utf-8", plain(&body)),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::status::{SourceStatus, UsedWithin};

    fn status() -> Status {
        let group = GroupStatus {
            name: "db".to_owned(),
            top: 7,
            used_within: Some(UsedWithin {
                ten_minutes: 8,
                ..UsedWithin::default()
            }),
            promoted: 5,
            wasted: 2,
            limit: Some(9),
            ..GroupStatus::default()
        };
        Status {
            act: true,
            groups: vec![group],
            waste_rate: 500,
            memory_pressure: Some(12.5),
            reload_refused: true,
            refused_reloads: 3,
            rounds: 4,
            round_seconds: 0.25,
            chosen_down: 6,
            source: SourceStatus {
                name: "damon".to_owned(),
                ..SourceStatus::default()
            },
            ..Status::default()
        }
    }

    fn ask(mut stream: impl Read + Write, accept: &str) -> String {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Says a byte now and then.
    struct Slow(u32);

    impl Read for Slow {
        fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(PATIENCE / 20);
            self.0 += 1;
            part[0] = b'x';
            Ok(usize::from(self.0 < 100))
        }
    }

    impl Write for Slow {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            Ok(part.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_asks_slowly_keeps_nobody_else_waiting() {
        let mut slow = Slow(0);
        answer(&mut slow, &Arc::new(Mutex::new(status()))).unwrap();
        assert!(slow.0 <= 21, "{} bytes were waited for", slow.0);
    }

    #[test]
    fn a_process_without_descriptors_does_not_spin() {
        let none = (0..3).map(|_| Err::<UnixStream, _>(io::Error::other("too many open files")));
        let began = Instant::now();
        answer_each(none, &Arc::new(Mutex::new(status())));
        assert!(began.elapsed() >= 3 * NEXT_ACCEPT);
    }

    #[test]
    fn metrics_are_served_on_both() {
        let shared: Shared = Arc::new(Mutex::new(status()));
        let address = serve(&Listen::Tcp("127.0.0.1:0".parse().unwrap()), shared.clone()).unwrap();
        let over_tcp = ask(
            TcpStream::connect(&address).unwrap(),
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
        );
        let plain = ask(TcpStream::connect(&address).unwrap(), "*/*");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        serve(&Listen::Unix(path.clone()), shared).unwrap();
        let over_unix = ask(UnixStream::connect(path).unwrap(), OPEN_METRICS);
        // Labels come in any order.
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&over_unix), sorted(&over_tcp));
        for line in [
            "# TYPE memferry_group_top_bytes gauge",
            "memferry_group_top_bytes{group=\"db\"} 7.0",
            "memferry_group_limit_bytes{group=\"db\"} 9.0",
            "memferry_group_used_bytes{group=\"db\",within=\"10m\"} 8.0",
            "memferry_moved_bytes_total{group=\"db\",outcome=\"promoted\",direction=\"up\"} 5.0",
            "memferry_regretted_bytes_total{group=\"db\",reason=\"waste\"} 2.0",
            "memferry_rate_ratio{reason=\"waste\"} 0.5",
            concat!(
                "memferry_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1.0"
            ),
            "memferry_act 1.0",
            "memferry_source_info{source=\"damon\"} 1.0",
            "memferry_pressure_ratio{resource=\"memory\"} 0.125",
            "memferry_reload_refused 1.0",
            "memferry_errors_total{reason=\"reload\"} 3.0",
            "memferry_rounds_total 4.0",
            "memferry_round_seconds 0.25",
            "memferry_chosen_bytes{direction=\"down\"} 6.0",
        ] {
            assert!(over_tcp.contains(line), "{line}: {over_tcp}");
        }
        assert!(over_tcp.ends_with("# EOF\n"));
        for line in [
            "Content-Type: text/plain; version=0.0.4",
            "# HELP memferry_rounds_total Rounds.\n# TYPE memferry_rounds_total counter\nmemferry_rounds_total 4.0\n",
            "# TYPE memferry_group_top_bytes gauge\nmemferry_group_top_bytes{group=\"db\"} 7.0\n",
        ] {
            assert!(plain.contains(line), "{line}: {plain}");
        }
        assert!(
            !plain.contains("# UNIT") && !plain.contains("EOF"),
            "{plain}"
        );
    }
}
