"""The comparison asks all stores the same, and notices when they disagree; peers of the extra ``bench`` left out."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from bench import measure
from bench.compare import run, workload
from bench.compare.peers.nyala_subject import EmbeddedNyala
from bench.compare.subject import folder_bytes

INSTALLED = {
    "Nyala": "nyala_subject.EmbeddedNyala",
    "DuckDB": "duckdb_peer.DuckDb",
    "DuckDB, no key": "duckdb_peer.KeylessDuckDb",
    "Parquet, zstd": "parquet_peer.Parquet",
    "the bytes alone": "machine_limit.MachineLimit",
}
TUNED = {
    "Nyala, tuned": "nyala_subject.TunedNyala",
    "DuckDB, tuned": "duckdb_peer.TunedDuckDb",
    "Parquet, tuned": "parquet_peer.TunedParquet",
}
QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SUBJECTS", INSTALLED)
    monkeypatch.setattr(run, "TUNED", TUNED)
    monkeypatch.setattr(run, "REHEARSAL_ROWS", 500)
    monkeypatch.setattr(run, "GETS_A_ROUND", 4)
    monkeypatch.setattr(run, "SLOW_GETS_A_ROUND", 1)
    monkeypatch.setattr(measure.gc, "collect", lambda: 0)  # it takes longer than all else here


@pytest.mark.parametrize(
    ("suite", "everybody"), [(run.run, {*INSTALLED}), (run.run_lineitem, {*INSTALLED}), (run.run_tuned, {*TUNED})]
)
def test_every_case_has_a_figure_of_everybody_who_offers_it(suite, everybody: set[str], tmp_path: Path) -> None:
    cases = suite(3_000, 1, tmp_path / "work", QUIET).cases()
    assert set(cases["load, durable"]) == set(cases["full scan to Arrow"]) == everybody
    assert set(cases["upsert 1 %, durable"]) == everybody - {"Parquet, zstd", "Parquet, tuned"}
    assert set(cases["point read after upserts"]) == everybody - {"the bytes alone"}
    assert all(result.median > 0 for row in cases.values() for result in row.values() if result.unit == "s")
    assert not (tmp_path / "work").exists()


def test_stores_that_disagree_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = EmbeddedNyala.upsert
    monkeypatch.setattr(EmbeddedNyala, "upsert", lambda self, rows: upsert(self, rows.slice(1)))
    with pytest.raises(AssertionError, match="the stores disagree"):
        run.run(1_000, 1, tmp_path / "work", QUIET)


@pytest.mark.parametrize("make", [workload.orders, workload.lineitems])
def test_all_ways_to_aggregate_agree(make, tmp_path: Path) -> None:
    given = make(2_000)
    answers = []
    for number, place in enumerate(name for name in INSTALLED.values() if "limit" not in name):
        folder = tmp_path / str(number)
        folder.mkdir()
        subject = run.subject_class(place)(folder, given)
        subject.load(given.table)
        found = [_rounded(subject.aggregate(asked), asked.groups) for asked in given.aggregates]
        answers.append((found, subject.scan(where=given.hundredth).num_rows))
        subject.close()
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][1] > 0


def _rounded(table: pa.Table, groups: list[str]) -> list[tuple]:
    """Return the rows in order, groups first, then the measures in the order of their values: names differ."""
    rows = [
        (*(row[name] for name in groups), *sorted(round(float(v), 4) for k, v in row.items() if k not in groups))
        for row in table.to_pylist()
    ]
    return sorted(rows)


def test_filters_as_sql() -> None:
    where: workload.Filter = [
        ("a", "<", 5),
        ("b", "=", "x"),
        ("c", ">=", date(1994, 1, 1)),
        ("d", "<", Decimal("0.05")),
    ]
    assert workload.sql(where) == "a < 5 AND b = 'x' AND c >= DATE '1994-01-01' AND d < 0.05"
    asked = workload.Aggregate("q", {"n": ("*", "count")}, ["g"], where[:1])
    assert asked.query("t") == "SELECT g, count(*) AS n FROM t WHERE a < 5 GROUP BY g"


def test_a_file_that_vanishes_while_a_folder_is_measured_counts_nothing(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "stays").write_bytes(b"x" * 10_000)
    (tmp_path / "manifest.new").write_bytes(b"x")
    both, stat = folder_bytes(tmp_path, logs=True), Path.stat

    def renamed_meanwhile(path: Path, **how: bool) -> object:
        if path.name == "manifest.new":
            path.unlink(missing_ok=True)
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", renamed_meanwhile)
    assert 10_000 <= folder_bytes(tmp_path, logs=True) < both
