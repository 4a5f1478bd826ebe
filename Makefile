# SPDX-License-Identifier: MIT OR Apache-2.0
# Thin names for what cargo and the memferry command do. `make help` lists them.

CARGO ?= cargo
DEMO := target/demo
BENCH := target/bench
# Where cargo puts what it builds.
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
MEMFERRY := $(RELEASE)/memferry
MEMFERRYD := $(RELEASE)/memferryd
BUILT := $(MEMFERRY) $(MEMFERRYD) $(RELEASE)/libmemferry.so $(RELEASE)/libmemferry.a
export PREFIX DESTDIR LIBDIR
# The Linux that the series is built on: a folder of kernel/hooks.
BASE ?= 6.12
XTASK := $(CARGO) xtask --base $(BASE)
LAB := $(XTASK) lab
# How many virtual machines share the tests, where they may run beside each other.
GUESTS ?= 2
SUITE := $(LAB) --guests $(GUESTS)

.PHONY: help demo test test-all lab lab-tiering lab-timed lab-zcu102 lab-debug lab-kcsan check bench install uninstall deb test-deb test-kubernetes setup setup-tests setup-test-all setup-deb setup-test-deb setup-test-kubernetes kernel-series kernel-check kernel-deb clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

# YES=1 lets these install packages as root without a question.
setup:
	@ci/setup.sh

setup-tests:
	@ci/setup.sh tests

setup-test-all:
	@ci/setup.sh tests promtool

setup-deb:
	@ci/setup.sh deb

setup-test-deb:
	@ci/setup.sh deb test-deb

setup-test-kubernetes:
	@ci/setup.sh test-kubernetes

demo: setup ## build, move real pages with every migrator, check every byte, leave a table and a report
	$(CARGO) build --release --locked --package memferry-cli
	@mkdir -p $(DEMO)
	$(MEMFERRY) topology
	$(MEMFERRY) bench move --quick --json=$(DEMO)/move.json
	$(MEMFERRY) bench count --quick --json=$(DEMO)/count.json
	$(MEMFERRY) bench stall --quick --json=$(DEMO)/stall.json
	$(MEMFERRY) report $(DEMO)/move.json $(DEMO)/count.json $(DEMO)/stall.json --output $(DEMO)/report.html
	@echo "Open $(DEMO)/report.html in a browser. The numbers behind it are in $(DEMO)/*.json."

test: setup-tests ## all tests: the C core, the libraries, the command, then the kernel in virtual machines
	ci/spdx.sh
	$(CARGO) test --workspace --locked
	# Machines that run tests for everybody are slow at times, and a limit is for hangs.
	$(SUITE) --profile release --short --patience 3

lab: setup ## build Linux without and with the series, test both in virtual machines, compare and measure them
	$(SUITE) --profile vanilla,release
	$(XTASK) compare
	$(LAB) --profile release -- 'modprobe mtcopy && memferry bench move --backend kernel --quick'

lab-tiering: setup ## the daemon with a workload in a virtual machine with a slow tier: what `memferry top` and the metrics show
	$(LAB) --profile release --seconds 600 --programs lab/tiering -- tiering.sh

lab-timed: setup ## the tests of the model by which the memory of a virtual machine takes time
	$(LAB) --machine timed

lab-zcu102: setup ## the same tests on arm64 with eight DMA channels, without and with the series, and with large base pages
	$(SUITE) --machine zcu102 --profile vanilla,release,release-64k

lab-debug: setup ## the guest tests on both machines in kernels with all their checkers: slow
	$(SUITE) --profile debug
	$(SUITE) --machine zcu102 --profile debug

lab-kcsan: setup ## the guest tests in a kernel that looks for data races: slow
	$(SUITE) --profile kcsan

test-all: setup-test-all check test lab lab-timed lab-zcu102 lab-debug lab-kcsan ## the same, Linux without the series, kernels with checkers, lints, the mails, sanitizers, the oldest compiler, the chart
	# Prometheus scrapes the daemon for ten minutes.
	$(CARGO) test --package memferryd --test daemon -- --ignored
	# The series for today's Linux.
	$(MAKE) lab lab-kcsan BASE=mainline
	$(CARGO) xtask lab --base mainline --guests $(GUESTS) --profile debug
	$(CARGO) xtask lab --base mainline --guests $(GUESTS) --machine zcu102
	# A thousand batches with every fault of a DMA engine, and two hundred with every pair: an hour or more.
	$(LAB) --profile release --seconds 7200 -- 'modprobe dcbm && ./faults alone 1000 && ./faults pairs 200'
	# With CPUs to spare a migrator may decline nothing; helpers run where they shall; a writer for each CPU.
	$(LAB) --machine x86_64-8 --profile release --test defaults --test placement --test placement-single --test contents --test two-nodes
	# Debian's own kernel with the series: hours on few cores.
	$(MAKE) kernel-deb
	$(LAB) --profile debian --test detect --test contents --test callers
	# Where all DMA bounces no channel is taken.
	$(LAB) --profile release --append swiotlb=force -- 'modprobe faultdma && ./devices bounce'
	# Every kind of memory with every source and every migrator; the same with records of four bytes.
	$(LAB) --profile release -- './pghot_promote all'
	# Misses of the timed machine's model that overlap; eight CPUs of two sockets there.
	$(LAB) --machine timed --set overlap=1
	$(LAB) --machine timed-sockets --patience 3 --test timed-clocks --test timed-runtime
	# No tier is slower than another.
	$(LAB) --profile release --append numa=nohmat -- './pghot_interface one-tier'
	# What the scan of page tables does to reclaim: a count of pages that needs many rounds.
	$(LAB) --profile release --steady-clock --seconds 1800 -- './pghot_scan refaults'
	# Room made by kswapd, for the sources that do not see what is cold.
	$(LAB) --profile release --steady-clock --seconds 1800 -- './pghot_exchange && ./pghot_exchange once'
	$(LAB) --profile debug --seconds 1800 -- 'modprobe dcbm && ./faults alone 100 && ./faults pairs 20'
	$(LAB) --profile release --append pghot=precise --test pghot-interface --test pghot-records --test pghot-toggle --test pghot-promote --test pghot-hints --test pghot-limits --test pghot-exchange
	$(SUITE) --profile debug --append pghot=precise --test pghot-interface --test pghot-records --test pghot-toggle --test pghot-late-node --test pghot-promote --test pghot-hints --test pghot-limits --test pghot-exchange
	$(LAB) --self-test
	$(LAB) --machine zcu102 --self-test
	ci/sanitize.sh address
	ci/sanitize.sh thread
	ci/sanitize.sh miri
	ci/oldest.sh
	$(MAKE) kernel-check
	$(MAKE) kernel-check BASE=mainline
	$(MAKE) test-deb
	packaging/test-upgrade.sh target/deb
	# A made-up host of 300 processes with a terabyte, for a quarter of an hour of its time.
	$(CARGO) test --release --package memferry-daemon --lib terabyte -- --ignored --nocapture
	$(MAKE) test-kubernetes

check: setup-tests ## formatting, lints, documentation, licences
	ci/spdx.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

bench: setup ## the full measurement, as published in docs/results (about ten minutes)
	$(CARGO) build --release --locked --package memferry-cli
	@mkdir -p $(BENCH)
	$(MEMFERRY) bench move --json=$(BENCH)/move.json
	$(MEMFERRY) bench count --json=$(BENCH)/count.json
	$(MEMFERRY) bench stall --json=$(BENCH)/stall.json
	$(MEMFERRY) report $(BENCH)/move.json $(BENCH)/count.json $(BENCH)/stall.json --output $(BENCH)/report.html

install: setup ## the command, the daemon, man pages, completions and the library for C under PREFIX (/usr/local); DESTDIR goes before it
	$(CARGO) build --release --locked --package memferry-cli --package memferryd --package memferry-c
	packaging/install.sh install $(BUILT)

uninstall: ## takes away what `make install` put there
	packaging/install.sh uninstall

deb: setup-deb ## Debian packages of the same, with unit and configuration of the daemon, in target/deb
	$(CARGO) build --release --locked --package memferry-cli --package memferryd --package memferry-c
	packaging/deb.sh $(BUILT)

test-deb: setup-test-deb deb ## lintian on them, the exposure of the unit, dpkg installs, upgrades and purges them in a folder, and the unit runs in an emulated Debian 13
	packaging/test-deb.sh target/deb $(BUILT)
	packaging/test-unit.sh target/deb/memferry_*.deb

test-kubernetes: setup-test-kubernetes ## the chart and Grafana's dashboard against the types of those who read them, and the program that tells the daemon which pods are in which group
	$(CARGO) build --release --locked --package memferryd
	@test -z "$$(gofmt -l deploy)" || { gofmt -d deploy; exit 1; }
	cd deploy/kubernetes && go vet . && MEMFERRYD=$(abspath $(MEMFERRYD)) go test .
	cd deploy/grafana && go vet . && go test .

kernel-series: setup ## the kernel series as mails, in target/kernel-series
	$(XTASK) series

kernel-check: setup-tests ## checkpatch, sparse, kernel-doc and htmldocs on the mails, and a kernel after each of them
	$(XTASK) series --check

kernel-deb: setup ## Debian packages of a kernel with the series, in target/kernel-deb (hours on few cores)
	$(CARGO) xtask deb

clean: ## remove what was built
	$(CARGO) clean
