"""Costly tests take turns: each has its turn, and each promise has a test in every turn."""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.turns import PERIOD, costly_tests, left_out, promised_files

ROOT = Path(__file__).parents[2]


def test_each_costly_test_is_there() -> None:
    for name in costly_tests():
        path, *classes, function = name.split("::")
        defined = rf"{classes[-1]} = " if function == "runTest" else rf" *def {function}\("  # a machine of Hypothesis
        assert re.search(rf"^{defined}", (ROOT / path).read_text(), re.MULTILINE), name


def test_each_has_its_turn_and_each_promise_is_in_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"a.py::slow": 20.0, "b.py::alone": 2.0, "c.py::one": 8.0, "d.py::with_spark": 30.0}
    monkeypatch.setattr("tests.turns.costly_tests", lambda: costs)
    monkeypatch.setattr("tests.turns.promised_files", lambda: {"b.py"})
    slow = [f"a.py::slow[{case}]" for case in range(20)]
    spark = [f"d.py::with_spark[{case}]" for case in range(10)]
    names = ["a.py::fast", *slow, "b.py::alone[x]", "b.py::alone[y]", "c.py::one", "c.py::two", *spark]
    items = [cast(Any, _Item(name)) for name in names]
    runs: Counter[str] = Counter()
    for turn in range(PERIOD):
        out = {item.nodeid for item in left_out(items, turn)}
        runs.update(ran := [name for name in names if name not in out])
        seconds = sum(costs[name.partition("[")[0]] / 20 for name in ran if name in slow) + 8 * ("c.py::one" in ran)
        assert 2 <= seconds <= 8 and len([name for name in ran if name in spark]) == 1, "turns take about as long"
        assert {"a.py::fast", "c.py::two"} <= set(ran) and {"b.py::alone[x]", "b.py::alone[y]"} & set(ran)
    assert {runs[name] for name in [*slow, *spark, "c.py::one"]} == {1}
    assert runs["b.py::alone[x]"] and runs["b.py::alone[y]"] and runs["c.py::two"] == PERIOD


class _Item:
    """A test, by its name."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid

    def get_closest_marker(self, marker: str) -> bool | None:
        return (marker == "spark" and "spark" in self.nodeid) or None


def test_the_promises_name_files() -> None:
    assert len(promised_files()) > 100 and all((ROOT / name).is_file() for name in promised_files())


def test_a_night_is_no_turn() -> None:
    (name, *_) = costly_tests()
    by_night = cast(Any, SimpleNamespace(nodeid=name, get_closest_marker=lambda marker: marker == "night" or None))
    assert not [item for turn in range(PERIOD) for item in left_out([by_night], turn)]
