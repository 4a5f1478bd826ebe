// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenMetrics over HTTP on a loopback port or a Unix socket: whatever is asked for, the answer is the metrics.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::config::Listen;
use crate::error::{DaemonError, file};
use crate::status::{GroupStatus, Status, TierStatus};

/// What metrics are made from.
pub(crate) type Shared = Arc<Mutex<Status>>;

type Labels = Vec<(&'static str, String)>;
type Amount = fn(&GroupStatus) -> u64;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<f64, AtomicU64>>;

/// A scraper that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// The metrics of a status as OpenMetrics.
///
/// # Errors
/// None that a string gives.
pub fn text(status: &Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("memferry");
    let group = |name: &str| vec![("group", name.to_owned())];
    let gauges = |registry: &mut Registry, name: &str, help: &str, rows: Vec<(Labels, f64)>| {
        let family = Gauges::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        registry.register_with_unit(name, help, Unit::Bytes, family);
    };
    let of = |get: fn(&GroupStatus) -> Option<u64>| {
        let rows = status
            .groups
            .iter()
            .filter_map(|of| Some((group(&of.name), get(of)? as f64)));
        rows.collect::<Vec<_>>()
    };
    gauges(
        &mut registry,
        "group_resident",
        "Memory that may move",
        of(|of| Some(of.resident)),
    );
    gauges(
        &mut registry,
        "group_top",
        "Memory in the top tier",
        of(|of| Some(of.top)),
    );
    gauges(
        &mut registry,
        "group_hot",
        "Memory seen in use",
        of(|of| Some(of.hot)),
    );
    gauges(
        &mut registry,
        "group_share",
        "Share of the top tier",
        of(|of| Some(of.share)),
    );
    gauges(
        &mut registry,
        "group_protect",
        "Protected of the top tier",
        of(|of| Some(of.protect)),
    );
    gauges(
        &mut registry,
        "group_limit",
        "Limit in the top tier",
        of(|of| of.limit),
    );
    let free = |(tier, of): (usize, &TierStatus)| {
        let name = if tier == 0 { "top" } else { "lower" };
        (vec![("tier", name.to_owned())], of.free as f64)
    };
    gauges(
        &mut registry,
        "tier_free",
        "Free memory",
        status.tiers.iter().enumerate().map(free).collect(),
    );

    let moved = Counters::default();
    let reasons: [(&str, &str, Amount); 3] = [
        ("promoted", "up", |of| of.promoted),
        ("demoted", "down", |of| of.demoted),
        ("stayed", "none", |of| of.stayed),
    ];
    for of in &status.groups {
        for (outcome, direction, get) in reasons {
            let mut labels = group(&of.name);
            labels.extend([
                ("outcome", outcome.to_owned()),
                ("direction", direction.to_owned()),
            ]);
            moved.get_or_create(&labels).inc_by(get(of) as f64);
        }
    }
    registry.register_with_unit(
        "moved",
        "Memory that the daemon chose, by what became of it",
        Unit::Bytes,
        moved,
    );
    let lost = Counters::default();
    for of in &status.groups {
        for (reason, bytes) in [("waste", of.wasted), ("thrash", of.thrashed)] {
            let mut labels = group(&of.name);
            labels.push(("reason", reason.to_owned()));
            lost.get_or_create(&labels).inc_by(bytes as f64);
        }
    }
    registry.register_with_unit("regretted", "Moves that did not pay", Unit::Bytes, lost);
    let kernel = Counters::default();
    for (direction, bytes) in [
        ("up", status.kernel_promoted),
        ("down", status.kernel_demoted),
    ] {
        if let Some(bytes) = bytes {
            kernel
                .get_or_create(&vec![("direction", direction.to_owned())])
                .inc_by(bytes as f64);
        }
    }
    registry.register_with_unit(
        "kernel_moved",
        "Memory that the kernel moved since boot",
        Unit::Bytes,
        kernel,
    );
    let cpu = Counters::default();
    let source = status
        .source
        .cpu_seconds
        .map(|seconds| (status.source.name.as_str(), seconds));
    for (part, seconds) in [Some(("daemon", status.cpu_seconds)), source]
        .into_iter()
        .flatten()
    {
        cpu.get_or_create(&vec![("part", part.to_owned())])
            .inc_by(seconds);
    }
    registry.register_with_unit(
        "cpu",
        "CPU time of the daemon and its source",
        Unit::Seconds,
        cpu,
    );
    let rates = Gauges::default();
    for (reason, per_mille) in [
        ("waste", status.waste_rate),
        ("pressure", status.pressure_rate),
    ] {
        rates
            .get_or_create(&vec![("reason", reason.to_owned())])
            .set(per_mille as f64 / 1000.0);
    }
    registry.register("rate_ratio", "What brakes leave of the rate", rates);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
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
            spawn(move || {
                for stream in listener.incoming().flatten() {
                    let times = stream
                        .set_read_timeout(Some(PATIENCE))
                        .and(stream.set_write_timeout(Some(PATIENCE)));
                    // A scraper that has gone asks again.
                    let _ = times.and_then(|()| answer(stream, &shared));
                }
            })?;
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
            spawn(move || {
                for stream in listener.incoming().flatten() {
                    let times = stream
                        .set_read_timeout(Some(PATIENCE))
                        .and(stream.set_write_timeout(Some(PATIENCE)));
                    let _ = times.and_then(|()| answer(stream, &shared));
                }
            })?;
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

fn answer(mut stream: impl Read + Write, shared: &Shared) -> io::Result<()> {
    // The request ends with an empty line; what it says does not matter.
    let (mut head, mut part) = (Vec::new(), [0; 512]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            _ if head.len() > 8 << 10 => return Ok(()),
            got => head.extend_from_slice(&part[..got]),
        }
    }
    let status = shared
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let body = text(&status).map_err(io::Error::other)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    fn status() -> Status {
        let group = GroupStatus {
            name: "db".to_owned(),
            top: 7,
            promoted: 5,
            wasted: 2,
            limit: Some(9),
            ..GroupStatus::default()
        };
        Status {
            groups: vec![group],
            waste_rate: 500,
            ..Status::default()
        }
    }

    fn ask(mut stream: impl Read + Write) -> String {
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn metrics_are_served_on_both() {
        let shared: Shared = Arc::new(Mutex::new(status()));
        let address = serve(&Listen::Tcp("127.0.0.1:0".parse().unwrap()), shared.clone()).unwrap();
        let over_tcp = ask(TcpStream::connect(address).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        serve(&Listen::Unix(path.clone()), shared).unwrap();
        let over_unix = ask(UnixStream::connect(path).unwrap());
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
            "memferry_moved_bytes_total{group=\"db\",outcome=\"promoted\",direction=\"up\"} 5.0",
            "memferry_regretted_bytes_total{group=\"db\",reason=\"waste\"} 2.0",
            "memferry_rate_ratio{reason=\"waste\"} 0.5",
        ] {
            assert!(over_tcp.contains(line), "{line}: {over_tcp}");
        }
        assert!(over_tcp.ends_with("# EOF\n"));
    }
}
