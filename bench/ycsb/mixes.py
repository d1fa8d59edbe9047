"""The six core workloads of YCSB, and the keys that they ask for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

FIELDS = 10
FIELD_BYTES = 100
ZIPF = 0.99
SCAN_ROWS_MAX = 100
DRAWN_AT_ONCE = 4096
FIELD_NAMES = [f"field{number}" for number in range(FIELDS)]


@dataclass(frozen=True)
class Mix:
    """Shares of the operations; ``latest`` asks for the keys inserted last, whatever the distribution."""

    name: str
    shares: dict[str, float]
    latest: bool = False


MIXES = {
    "A": Mix("half updates", {"read": 0.5, "update": 0.5}),
    "B": Mix("5 % updates", {"read": 0.95, "update": 0.05}),
    "C": Mix("reads", {"read": 1.0}),
    "D": Mix("5 % inserts, the latest read", {"read": 0.95, "insert": 0.05}, latest=True),
    "E": Mix("short ranges, 5 % inserts", {"scan": 0.95, "insert": 0.05}),
    "F": Mix("half read, changed and written", {"read": 0.5, "read and update": 0.5}),
}
DISTRIBUTIONS = ("uniform", "zipf")


def operations(mix: Mix, random: np.random.Generator) -> Iterator[str]:
    """Yield names of operations without end, in the shares of the mix."""
    names = list(mix.shares)
    while True:
        yield from random.choice(names, DRAWN_AT_ONCE, p=list(mix.shares.values())).tolist()


def ranks(records: int, distribution: str, random: np.random.Generator) -> Iterator[int]:
    """Yield numbers below ``records`` without end; in a zipf distribution 0 comes most often."""
    if distribution == "uniform":
        while True:
            yield from random.integers(0, records, DRAWN_AT_ONCE).tolist()
    weights = np.cumsum(1 / np.arange(1, records + 1) ** ZIPF)
    while True:
        yield from np.searchsorted(weights, random.random(DRAWN_AT_ONCE) * weights[-1]).tolist()


def scattered(rank: int, records: int) -> int:
    """Return the key of a rank: the popular ones lie anywhere, as in YCSB's scrambled distribution.

    Multiplying by a number without a common factor is a permutation, the same in every process.
    """
    return rank * 2_654_435_761 % records if records % 2_654_435_761 else rank


def text(random: np.random.Generator) -> str:
    """Return one field: letters that hardly compress."""
    return (random.integers(0, 64, FIELD_BYTES, np.uint8) + 48).tobytes().decode("ascii")
