# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes SQL for sqlite3: `sqlite.py fill` makes a database, `sqlite.py load` is the load that is traced."""

import random
import sys

CUSTOMERS = 20_000
ORDERS = 60_000
CITIES = 200
STATEMENTS = 2_500
WORDS = "amber birch cedar delta ember fjord grove heron iris juniper kelp larch maple nectar olive pine".split()


def fill(chance):
    yield "PRAGMA page_size=4096; PRAGMA journal_mode=OFF; BEGIN;"
    yield "CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT, city INTEGER, note TEXT);"
    yield "CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, day INTEGER, cents INTEGER, text TEXT);"
    for table, rows in (("customers", CUSTOMERS), ("orders", ORDERS)):
        for row in range(1, rows + 1):
            text = " ".join(chance.choices(WORDS, k=25))
            if table == "customers":
                yield f"INSERT INTO customers VALUES({row},'{text[:20]} {row}',{chance.randrange(CITIES)},'{text}');"
            else:
                owner, day = chance.randrange(1, CUSTOMERS + 1), row * 365 // ORDERS
                yield f"INSERT INTO orders VALUES({row},{owner},{day},{chance.randrange(100_000)},'{text}');"
    yield "CREATE INDEX by_city ON customers(city); CREATE INDEX by_customer ON orders(customer);"
    yield "COMMIT;"


def load(chance):
    # Some customers are asked for far more often than others: rank r with weight r^-0.9.
    ranked = list(range(1, CUSTOMERS + 1))
    chance.shuffle(ranked)
    weights = [(rank + 1) ** -0.9 for rank in range(CUSTOMERS)]
    customers = iter(chance.choices(ranked, weights, k=STATEMENTS))
    yield "PRAGMA cache_size=-65536; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
    for customer in customers:
        kind = chance.random()
        if kind < 0.5:
            yield f"SELECT name, length(note) FROM customers WHERE id={customer};"
        elif kind < 0.75:
            yield f"SELECT sum(cents), max(length(text)) FROM orders WHERE customer={customer};"
        elif kind < 0.9:
            yield f"UPDATE orders SET cents=cents+1 WHERE customer={customer};"
        elif kind < 0.96:
            start = chance.randrange(1, ORDERS - 100)
            yield f"SELECT count(*), sum(cents) FROM orders WHERE id BETWEEN {start} AND {start + 100};"
        elif kind < 0.999:
            city = int(CITIES * chance.random() ** 3)
            yield f"SELECT name FROM customers WHERE city={city} ORDER BY name LIMIT 3;"
        else:
            yield f"SELECT day/30, sum(cents) FROM orders WHERE id>{ORDERS * 7 // 8} GROUP BY 1 ORDER BY 2 DESC LIMIT 1;"


if __name__ == "__main__":
    make = {"fill": fill, "load": load}[sys.argv[1]]
    sys.stdout.writelines(line + "\n" for line in make(random.Random(1)))
