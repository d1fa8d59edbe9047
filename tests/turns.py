"""Costly tests take turns by day: a run takes one in ten of them, and the commit chooses which. By night all run.

``turns.txt`` names the functions of tests that cost more than a quarter of a second of processor time, all values of
their parameters together; with Spark, more than two seconds by the clock. A file that a promise of
``docs/guarantees*.md`` names runs at least its cheapest test in every turn. The rules of the house and the seeds of the
simulations always run.

    COSTS=/tmp/costs.jsonl TURN= make test     # all tests, and what each costs
    python -m tests.turns /tmp/costs.jsonl     # writes turns.txt anew
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PERIOD = 10
LIST = Path(__file__).with_name("turns.txt")
_PAGES = sorted((LIST.parents[1] / "docs").glob("guarantees*.md"))
_SECONDS, _SPARK_SECONDS = 0.25, 2.0
_ALWAYS = (
    "tests/house/test_tidy.py::",
    "tests/simulation/store/test_store.py::test_seeds_are_right",
    "tests/simulation/cluster/test_cluster.py::test_seeds_are_right",
)


def costly_tests() -> dict[str, float]:
    """Return the seconds of each test function in the list, by ``path::name``."""
    lines = [line.split() for line in LIST.read_text().splitlines()]
    return {name: float(seconds) for seconds, name in lines}


def promised_files() -> frozenset[str]:
    """Return the files of tests that the promises name."""
    return frozenset(name for page in _PAGES for name in re.findall(r"tests/[\w/.-]+\.py", page.read_text()))


def left_out(items: Sequence[pytest.Item], turn: int) -> list[pytest.Item]:
    """Return the tests whose turn it is not. All turns take about as long, those with Spark and the others each by
    themselves: the costliest test comes first, and each goes to the turn with the least."""
    tests = {item.nodeid: item for item in items if not _has(item, "night")}
    seconds = _seconds_of(list(tests))
    loads = {is_spark: [0.0] * PERIOD for is_spark in (False, True)}
    out: set[str] = set()
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        load = loads[_has(tests[name], "spark")]
        own = load.index(min(load))
        load[own] += seconds[name]
        if own != turn:
            out.add(name)
    files: dict[str, list[str]] = defaultdict(list)
    for name in tests:
        files[name.partition("::")[0]].append(name)
    for path in files.keys() & promised_files():
        if out.issuperset(files[path]):
            out.remove(min(files[path], key=seconds.__getitem__))
    return [tests[name] for name in tests if name in out]


def _seconds_of(names: Sequence[str]) -> dict[str, float]:
    """Return how long each costly test takes: all values of a function's parameters take about the same."""
    costly, counts = costly_tests(), Counter(map(_function, names))
    return {name: costly[_function(name)] / counts[_function(name)] for name in names if _function(name) in costly}


@contextmanager
def noted(item: pytest.Item) -> Iterator[None]:
    """Append the cost of a test to the file that the environment names in COSTS, if it does."""
    file = os.environ.get("COSTS")
    clock, spent = time.perf_counter(), _processor_seconds()
    yield
    if file:
        cost = time.perf_counter() - clock if _has(item, "spark") else _processor_seconds() - spent
        with Path(file).open("a") as out:
            out.write(json.dumps([item.nodeid, round(cost, 3), _has(item, "spark")]) + "\n")


def _processor_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _has(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def _main(costs: Path) -> None:
    seconds: Counter[str] = Counter()
    with_spark: set[str] = set()
    for line in costs.read_text().splitlines():
        nodeid, cost, is_spark = json.loads(line)
        seconds[_function(nodeid)] += cost
        if is_spark:
            with_spark.add(_function(nodeid))
    costly = [
        (cost, name)
        for name, cost in seconds.most_common()
        if cost > (_SPARK_SECONDS if name in with_spark else _SECONDS) and not name.startswith(_ALWAYS)
    ]
    LIST.write_text("".join(f"{cost:5.1f} {name}\n" for cost, name in costly))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
