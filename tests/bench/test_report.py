"""Results survive their file, and read as figures do."""

from pathlib import Path

import pytest

from bench import measure, plots, report
from bench.report import Result, Suite

SUITE = Suite(
    "compare",
    {"rows": 1_000},
    [
        Result("load", "one", "s", [3.0, 1.0, 2.0]),
        Result("load", "two", "s", [0.5]),
        Result("size", "one", "MB", [8.0]),
    ],
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (report, plots):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "README", tmp_path / "README.md")
    return tmp_path


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12.34, "s", "12.3 s"),
        (0.5, "s", "500 ms"),
        (0.00123, "s", "1.23 ms"),
        (4.2e-5, "s", "42.0 us"),
        (1e-8, "s", "0.01 us"),
        (1_234_567.0, "rows/s", "1,234,567 rows/s"),
        (2.5, "GB/s", "2.50 GB/s"),
        (3.0, "rows", "3 rows"),
    ],
)
def test_figures_read_well(value: float, unit: str, text: str) -> None:
    assert report.shown(value, unit) == text


def test_a_suite_survives_its_file(folder: Path) -> None:
    assert Suite.load(SUITE.save()) == SUITE


def test_markdown_has_medians_and_gaps() -> None:
    lines = report.markdown(SUITE).splitlines()
    assert lines[0] == "|  | one | two |"
    assert lines[2:4] == ["| load | 2.00 s | 500 ms |", "| size | 8.00 MB |  |"]
    assert "rows 1,000" in lines[-1]


def test_a_figure_at_which_a_subject_was_ended_says_so() -> None:
    assert report.text(Result("load", "one", "s", [1_800.0], beyond=True)) == "> 1,800 s"


def test_a_section_is_replaced_and_the_rest_kept(folder: Path) -> None:
    report.README.write_text("before\n<!-- a: begin -->old<!-- a: end -->\nafter\n")
    report.write_section("a", "new")
    report.write_section("a", "newer")
    assert report.README.read_text() == "before\n<!-- a: begin -->\n\nnewer\n\n<!-- a: end -->\nafter\n"
    with pytest.raises(ValueError, match="no markers for b"):
        report.write_section("b", "text")


def test_turns_go_back_and_forth() -> None:
    seen: list[tuple[str, int]] = []
    actions = {name: lambda number, name=name: seen.append((name, number)) for name in "ab"}
    samples = measure.take_turns(actions, rounds=2)
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert {name: len(times) for name, times in samples.items()} == {"a": 2, "b": 2}


def test_the_machine_is_described_without_its_name() -> None:
    import platform

    assert platform.node() not in str(report.machine())


def test_a_picture_is_drawn(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plots.draw(SUITE).read_bytes().startswith(b"\x89PNG")
