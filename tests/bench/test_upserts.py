"""The comparison of upserts sees each row that a store loses or doubles, and ends a store that takes too much."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from bench import data, report
from bench.report import Result, Suite
from bench.upserts import page, rows, run
from bench.upserts.processes import Limits
from bench.upserts.rows import Comparison, Sizes
from bench.upserts.servers import SUBJECTS
from tests.dose import dose

SIZES = Sizes(rows=2_000, changes=200, small=6, processes=2)
QUIET = Console(quiet=True)
SERVER, EMBEDDED = "Nyala, server", "Nyala, in process"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    rows.make(place, SIZES)
    return place


def upserted(below: pa.Table, above: pa.Table) -> pa.Table:
    stays = ~np.isin(below[data.KEY].to_numpy(), above[data.KEY].to_numpy())
    return pa.concat_tables([below.filter(pa.array(stays)), above])


def test_half_of_the_upserted_keys_exist_and_small_calls_share_one_row(folder: Path) -> None:
    base = rows.read(folder / rows.BASE)[data.KEY].to_numpy()
    changes = rows.read(folder / rows.CHANGES)[data.KEY].to_numpy()
    assert len(np.unique(base)) == len(base) == 2_000 and len(np.unique(changes)) == len(changes) == 200
    assert np.isin(changes, base).sum() == 100 and changes.max() < 2_000 * data.KEY_GAP
    first, second = (rows.read(folder / rows.small_file(process)).to_batches(rows.CALL_ROWS) for process in range(2))
    assert len(first) == len(second) == 3
    both = [set(calls[call][data.KEY].to_pylist()) for calls in (first, second) for call in range(3)]
    assert all(len(keys) == rows.CALL_ROWS for keys in both)
    assert sum(np.isin(list(keys), base).sum() for keys in both) == len(both) * rows.CALL_ROWS / 2
    assert [len(both[call] & both[3 + call]) for call in range(3)] == [1, 1, 1]
    assert not np.isin(changes, list(set().union(*both))).any()


def test_lost_stale_and_doubled_rows_are_counted(folder: Path) -> None:
    base, changes = rows.read(folder / rows.BASE), rows.read(folder / rows.CHANGES)
    right = upserted(base, changes)
    rows.note_answers(folder, True, None)
    assert rows.checked(right, folder) == Comparison(lost=0, doubled=0)
    assert rows.checked(right.slice(2), folder) == Comparison(lost=2, doubled=0)
    assert rows.checked(pa.concat_tables([right, right.slice(5, 3)]), folder) == Comparison(lost=0, doubled=3)
    assert rows.checked(base, folder) == Comparison(lost=200, doubled=0), "100 are missing, 100 have their old values"
    assert rows.checked(pa.concat_tables([base, changes]), folder) == Comparison(lost=0, doubled=100)
    stranger = right.slice(0, 1).set_column(0, data.SCHEMA.field(0), pa.array([-7]))
    with pytest.raises(ValueError, match="1 rows that no call wrote, the first with the key -7"):
        rows.checked(pa.concat_tables([right, stranger]), folder)


def test_calls_without_an_answer_may_have_been_applied_or_not(folder: Path) -> None:
    right = upserted(rows.read(folder / rows.BASE), rows.read(folder / rows.CHANGES))
    first, second = (rows.read(folder / rows.small_file(process)) for process in range(2))
    acknowledged = upserted(right, upserted(first.slice(0, 20), second.slice(0, 10)))
    rows.note_answers(folder, True, [2, 1])
    assert rows.checked(acknowledged, folder) == Comparison(lost=0, doubled=0)
    assert rows.checked(upserted(acknowledged, second), folder) == Comparison(lost=0, doubled=0)
    assert rows.checked(upserted(right, first.slice(0, 20)), folder) == Comparison(lost=9, doubled=0)
    rows.note_answers(folder, False, [0, 0])
    assert rows.checked(rows.read(folder / rows.BASE), folder) == Comparison(lost=0, doubled=0)


def test_a_short_run(tmp_path: Path) -> None:
    names = dose(["DuckDB"], [SERVER, EMBEDDED, "DuckDB", "DuckDB, threads of one process"])
    kept: list[Suite] = []
    suite = run.measure(SIZES, Limits(), 1, tmp_path / "work", QUIET, names, kept.append)
    cases = suite.cases()
    with_large = {name for name in names if SUBJECTS[name].has_large}
    with_small = {name for name in names if SUBJECTS[name].has_small}
    assert set(cases[run.LARGE]) == set(cases[run.LARGE_PEAK]) == with_large
    assert set(cases[run.SMALL_RATE]) == set(cases[run.SMALL_PEAK]) == with_small
    assert {each.median for each in cases[run.SMALL_CALLS].values()} == {6}
    wrong = [each for case, row in cases.items() if case.startswith("rows") for each in row.values()]
    assert len(wrong) == 2 * (len(with_large) + len(with_small)) and {each.median for each in wrong} == {0}
    assert all(row.median > 0 for case in (run.LARGE, run.LARGE_PEAK, run.SMALL_RATE) for row in cases[case].values())
    assert [each.subjects for each in kept] == [suite.subjects[: count + 1] for count in range(len(names))]
    assert not (tmp_path / "work").exists()


def test_a_subject_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    bench = run.Upserts(SIZES, Limits(memory_bytes=1_000_000), tmp_path / "work", QUIET)
    with pytest.raises(RuntimeError, match="Nyala, in process was ended while it loaded, by its memory"):
        bench.measure(EMBEDDED, SUBJECTS[EMBEDDED])
    shutil.rmtree(bench.work)


def test_the_front_page_has_a_row_for_each_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def figures(name: str, seconds: float, lost: float, beyond: bool = False) -> list[Result]:
        return [
            Result(run.LARGE, name, "s", [seconds], beyond),
            Result(run.LARGE_PEAK, name, "MB", [800.0]),
            Result(run.SMALL_RATE, name, "per s", [0.0 if beyond else 250.0]),
            Result(run.AFTER_SMALL.format(run.LOST), name, "rows", [lost]),
            Result(run.AFTER_SMALL.format(run.DOUBLED), name, "rows", [0]),
        ]

    suite = Suite(run.NAME, {}, figures("one", 2.5, 0) + figures("two", 1_800, 12, beyond=True))
    assert page.front(suite).splitlines()[2:] == [
        "| one | 2.50 s | 800 MB | 250 per s | 0, 0 |",
        "| two | > 1,800 s | 800 MB | none in time | 12, 0 |",
    ]
    for module, name in ((report, "README"), (page, "FRONT")):
        monkeypatch.setattr(module, name, tmp_path / f"{name}.md")
        (tmp_path / f"{name}.md").write_text("<!-- upserts: begin --><!-- upserts: end -->")
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    page.publish(suite)
    assert (tmp_path / "upserts.png").read_bytes().startswith(b"\x89PNG")
    assert page.front(suite) in (tmp_path / "FRONT.md").read_text()
    assert "> 1,800 s" in (tmp_path / "README.md").read_text()
