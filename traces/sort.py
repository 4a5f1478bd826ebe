# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sorts records by one key and then by another, and looks some of them up by name in between."""

import random

RECORDS = 30_000

chance = random.Random(1)
records = [(chance.randrange(1_000_000), f"{chance.randrange(10**9):0200}", chance.random()) for _ in range(RECORDS)]
by_name = {record[1]: record for record in records}
names = list(by_name)

records.sort()
total = 0.0
for _ in range(20_000):
    # A few names are asked for often: the index falls off steeply.
    total += by_name[names[int(len(names) * chance.random() ** 4)]][2]
records.sort(key=lambda record: record[2])
grouped = {}
for number, name, share in records:
    grouped.setdefault(number // 1000, []).append(name)
print(len(grouped), round(total, 3))
