#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What `make lab-tiering` runs in the guest: a program whose hot memory lies in the slow tier, the daemon, and what it shows.
set -e
cat >/tmp/memferry.toml <<'END'
act = true
source = "damon"

[metrics]
listen = "127.0.0.1:9464"

[[group]]
name = "workload"
processes = ["promote-run"]
END
cat /tmp/memferry.toml
ip link set lo up
memferryd --config /tmp/memferry.toml &
daemon=$!
memferry bench promote --mode none --scenario 1 --size 256M --seconds 60 --runs 1 >/tmp/workload.txt 2>&1 &
workload=$!
for _ in 1 2 3 4 5; do
    sleep 6
    printf '\n$ memferry top --once\n'
    memferry top --once
done
printf '\n$ wget -q -O - http://127.0.0.1:9464/metrics | grep -v "^#"\n'
wget -q -O - http://127.0.0.1:9464/metrics | grep -v '^#'
wait $workload
kill $daemon
wait $daemon
printf '\nWhat the workload says of it:\n'
cat /tmp/workload.txt
