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
    monkeypatch.setattr(
        "tests.turns.costly_tests", lambda: dict.fromkeys(("a.py::slow", "b.py::alone", "c.py::one"), 9.0)
    )
    monkeypatch.setattr("tests.turns.promised_files", lambda: {"b.py"})
    names = [
        "a.py::fast",
        *(f"a.py::slow[{case}]" for case in range(20)),
        "b.py::alone[x]",
        "b.py::alone[y]",
        "c.py::one",
    ]
    items = [
        cast(Any, SimpleNamespace(nodeid=name, get_closest_marker=lambda _: None)) for name in [*names, "c.py::two"]
    ]
    runs: Counter[str] = Counter()
    for turn in range(PERIOD):
        out = {item.nodeid for item in left_out(items, turn)}
        runs.update(item.nodeid for item in items if item.nodeid not in out)
        assert len([name for name in out if name.startswith("a.py")]) == 18 and "a.py::fast" not in out
        assert len([name for name in out if name.startswith("b.py")]) == 1
    assert {runs[name] for name in names if "slow" in name} == {1} and runs["c.py::one"] == 1
    assert runs["b.py::alone[x]"] and runs["b.py::alone[y]"] and runs["c.py::two"] == PERIOD


def test_the_promises_name_files() -> None:
    assert len(promised_files()) > 100 and all((ROOT / name).is_file() for name in promised_files())


def test_a_night_is_no_turn() -> None:
    (name, *_) = costly_tests()
    by_night = cast(Any, SimpleNamespace(nodeid=name, get_closest_marker=lambda marker: marker == "night" or None))
    assert not [item for turn in range(PERIOD) for item in left_out([by_night], turn)]
