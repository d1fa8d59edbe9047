"""One client process:  python -m bench.ycsb.client STORE ADDRESS NUMBER

It writes a line once it is connected. Then it reads a task a line from standard input, runs it from its moment on, and
writes a line with what it measured.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import count

import numpy as np

from .mixes import FIELD_NAMES, FIELDS, MIXES, SCAN_ROWS_MAX, operations, ranks, scattered, text
from .stores import CLIENTS, Client

WARM_SECONDS = 0.5
KEYS_A_TASK = 1 << 32
"""Inserts of a client in a task take keys of its own: nobody else's, and none of an earlier task."""


@dataclass(frozen=True)
class Task:
    """What to run, and when: ``start`` is on the clock of all processes."""

    mix: str
    distribution: str
    records: int
    start: float
    seconds: float
    first_key: int


def run(client: Client, task: Task, seed: int) -> tuple[list[float], float]:
    """Run a task; return the seconds of each operation that began in its time, and of the processor for all of them."""
    random = np.random.default_rng(seed)
    mix = MIXES[task.mix]
    chosen = ranks(task.records, task.distribution, random)
    new_keys = count(task.first_key)
    inserted: list[int] = []
    values = [text(random) for _ in range(FIELDS)]

    def key() -> int:
        rank = next(chosen)
        if mix.latest:
            return inserted[-1 - rank] if rank < len(inserted) else task.records - 1 - rank
        return scattered(rank, task.records)

    def one(operation: str) -> None:
        if operation == "insert":
            new = next(new_keys)
            client.insert(new, values)
            inserted.append(new)
        elif operation == "scan":
            client.scan(key(), int(random.integers(1, SCAN_ROWS_MAX + 1)))
        else:
            asked = key()
            if operation != "update" and not client.read(asked):
                raise AssertionError(f"key {asked} is missing")
            if operation != "read":
                client.update(asked, FIELD_NAMES[asked % FIELDS], text(random))

    warm = time.time()
    names = operations(mix, random)
    while time.time() < max(task.start, warm):
        one(next(names))
    taken: list[float] = []
    spent = time.process_time()
    end = time.perf_counter() + task.seconds
    for operation in names:
        begin = time.perf_counter()
        if begin >= end:
            break
        one(operation)
        taken.append(time.perf_counter() - begin)
    return taken, time.process_time() - spent


def main() -> None:
    """Serve tasks until standard input ends."""
    store, address, number = sys.argv[1:]
    client = CLIENTS[store](address)
    print("ready", flush=True)
    for line in sys.stdin:
        task = Task(**json.loads(line))
        taken, spent = run(client, task, seed=int(number) + task.first_key % 1_000_003)
        print(json.dumps([spent, *(round(seconds, 7) for seconds in taken)]), flush=True)


def line(task: Task) -> str:
    """Return a task as ``main`` reads it."""
    return json.dumps(asdict(task)) + "\n"


if __name__ == "__main__":
    main()
