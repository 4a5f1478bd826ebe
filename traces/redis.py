# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads a Redis server at a socket: fills it, then asks for keys by a zipf law, then shuts it down."""

import random
import socket
import sys
import time

KEYS = 22_000
REQUESTS = 30_000
SKEW = 0.99
BATCH = 100


def command(*words):
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def connect(path):
    # The server runs a hundred times slower than usual, and so does its start.
    for _ in range(1200):
        try:
            server = socket.socket(socket.AF_UNIX)
            server.connect(path)
            return server
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no server at {path}")


def send(server, replies, commands):
    """Sends in batches and reads as many replies."""
    for at in range(0, len(commands), BATCH):
        batch = commands[at : at + BATCH]
        server.sendall(b"".join(batch))
        for _ in batch:
            line = replies.readline()
            if line.startswith(b"-") or not line:
                sys.exit(f"the server says {line!r}")
            if line.startswith(b"$"):
                replies.read(int(line[1:]) + 2)


def main():
    chance = random.Random(1)
    server = connect(sys.argv[1])
    replies = server.makefile("rb")
    key = lambda number: b"user:%07d" % number
    value = lambda: bytes(chance.choices(b"abcdefgh", k=chance.randrange(200, 1600)))
    send(server, replies, [command(b"SET", key(number), value()) for number in range(KEYS)])
    ranked = list(range(KEYS))
    chance.shuffle(ranked)
    weights = [(rank + 1) ** -SKEW for rank in range(KEYS)]
    load = []
    for number in chance.choices(ranked, weights, k=REQUESTS):
        # A value is written anew at its old length, as a cache's are.
        if chance.random() < 0.9:
            load.append(command(b"GET", key(number)))
        else:
            load.append(command(b"SETRANGE", key(number), b"0", b"x" * 100))
    send(server, replies, load)
    server.sendall(command(b"SHUTDOWN", b"NOSAVE"))


if __name__ == "__main__":
    main()
