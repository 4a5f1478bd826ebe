#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the traces of this folder and of held-back/ anew: all, or those that are named (traces/make.sh sqlite gups).
# Needs valgrind, sqlite3, redis-server, gcc, python3, perl, xz and ld, the C library's headers and libc.a, and up to
# two hours.
set -eu
cd "$(dirname "$0")"

memferry=${MEMFERRY:-../target/release/memferry}
if ! command -v "$memferry" >/dev/null; then
    echo "no $memferry: build it with cargo build --release, or name one in MEMFERRY" >&2
    exit 1
fi
packages="valgrind sqlite3 redis-server gcc python3 perl xz-utils binutils libc6-dev"
for program in valgrind sqlite3 redis-server gcc python3 perl xz ld; do
    if ! command -v "$program" >/dev/null; then
        echo "missing: $program; run: sudo apt-get install $packages" >&2
        exit 1
    fi
done
# Debian's, not one that a version manager put in front: those are scripts, and what they start is not traced.
python=/usr/bin/python3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
traces=$PWD

# record NAME WINDOW TITLE COMMAND...
record() {
    name=$1 window=$2 title=$3
    shift 3
    "$memferry" trace record --cache 256K --window "$window" --max-accesses "${most:-900M}" --name "$title" \
        --output "$traces/$name.trace" -- "$@"
}

# Text that is on every machine with a C compiler.
headers() {
    cat /usr/include/*.h /usr/include/linux/*.h >"$work/headers"
}

for trace in ${*:-gups scan sqlite sort compiler redis words xz ld}; do
    case $trace in
        gups | scan)
            gcc -O2 -o "$work/$trace" "$trace.c"
            case $trace in
                gups) record gups 262144 "random updates, a hot set that moves" "$work/gups" ;;
                scan) record scan 65536 "scans of a table beside an index in use" "$work/scan" ;;
            esac
            ;;
        sqlite)
            "$python" sqlite.py fill | sqlite3 "$work/orders.db"
            "$python" sqlite.py load >"$work/load.sql"
            record sqlite 65536 "sqlite3: mixed queries, 80,000 rows" sqlite3 "$work/orders.db" \
                <"$work/load.sql" >"$work/answers"
            ;;
        sort)
            PYTHONHASHSEED=0 record sort 262144 "python3: sort and look up 30,000 records" "$python" -S sort.py
            ;;
        compiler)
            gcc -E -O2 -I ../core/include ../core/lanes.c -o "$work/lanes.i"
            # gcc itself only starts the compiler, and what a program starts is not traced.
            record compiler 262144 "cc1 -O2 core/lanes.c" "$(gcc -print-prog-name=cc1)" -quiet -O2 -fpreprocessed \
                "$work/lanes.i" -o "$work/lanes.s"
            ;;
        redis)
            "$python" redis.py "$work/socket" &
            record redis 524288 "redis-server: fill, then zipf 0.99, nine reads to a write" redis-server --port 0 \
                --unixsocket "$work/socket" --save "" --appendonly no --daemonize no --dir "$work" --timeout 0
            wait
            ;;
        words)
            headers
            record held-back/words 524288 "perl: index the words of the system's headers, and ask" perl \
                held-back/words.pl "$work/headers"
            ;;
        xz)
            headers
            most=350M record held-back/xz 1048576 "xz -3 of the system's headers" xz -3 --threads=1 --keep --stdout \
                "$work/headers" >/dev/null
            ;;
        ld)
            most=350M record held-back/ld 131072 "ld -r of the whole C library" ld -r --whole-archive \
                "$(gcc -print-file-name=libc.a)" -o "$work/libc.o"
            ;;
        *)
            echo "no trace is called $trace: gups, scan, sqlite, sort, compiler, redis, words, xz, ld" >&2
            exit 2
            ;;
    esac
done
