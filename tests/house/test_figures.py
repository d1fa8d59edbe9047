"""No figure of the house rises: neither loose files, nor circles, nor packages that say nothing."""

from __future__ import annotations

import json

from tests.house.figures import RECORD, circles, figures, java_graph, packages_of, risen


def test_no_figure_of_the_house_rises() -> None:
    """One that fell is recorded anew: ``python tests/house/figures.py --record``."""
    assert list(risen(figures(), json.loads(RECORD.read_text()))) == []


def test_a_figure_that_rose_is_named() -> None:
    assert list(risen({"circles": 2, "files": 1}, {"circles": 1, "files": 4})) == ["circles: 2, and 1 is recorded"]
    assert list(risen({"a new one": 1}, {})) == ["a new one: 1, and 0 is recorded"]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a", "f"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"]]
    chain = {str(number): {str(number + 1)} for number in range(5_000)}
    assert len(circles({**chain, "5000": {"0"}})[0]) == 5_001, "as long as one likes"


def test_java_uses_what_it_imports_and_what_lies_beside_it() -> None:
    imports = "package a;\nimport a.b.Room.Chair;\nimport x.Lamp;\n"
    texts = {
        "Door": imports + 'class Door { Chair chair; String text = "// Hall"; Lamp lamp; }',
        "Room": "package a.b;\n/** Unlike a Hall. */\nclass Room { record Chair() {} }",
        "Hall": "package a;\nclass Hall { Door door; /* Room */ }",
        "Lamp": "package a;\nclass Lamp {}",
    }
    graph = java_graph(texts.items())
    assert graph == {"a.Door": {"a.b.Room"}, "a.b.Room": set(), "a.Hall": {"a.Door"}, "a.Lamp": set()}
    assert packages_of(graph) == {"a": {"a.b"}, "a.b": set()}
