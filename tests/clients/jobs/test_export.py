"""Tables exported to folders of Parquet files."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cli.output import WRITERS
from nyala.clients.jobs.backup import export_job, parts
from nyala.clients.jobs.backup.row_hash import Sums
from nyala.jobs import LocalExecutor, backup, checksum, export
from nyala.schemas.errors import AlreadyPresentError, ConflictError


def test_the_folder_holds_the_rows(source: Database, homes: Table, tmp_path: Path) -> None:
    made = export(source, "homes", tmp_path / "all", split_bytes=5_000)
    assert made.rows == 500 and len(made.parts) >= 3
    sums = Sums()
    for batch in ds.dataset(tmp_path / "all").to_batches():
        sums.add(batch, ["id"])
    wanted = checksum(source, "homes")
    assert (sums.count, sums.text) == (500, wanted.checksum)
    some = export(source, "homes", tmp_path / "some", columns=["id", "city"], where="small > 0")
    read = ds.dataset(tmp_path / "some").to_table()
    assert read.schema.names == ["id", "city"]
    assert read.num_rows == some.rows == homes.scan(where="small > 0").count()
    with pytest.raises(AlreadyPresentError, match="not empty"):
        export(source, "homes", tmp_path / "all")


def test_an_export_that_an_earlier_version_began_is_not_mixed_with_moments_in_utc(
    source: Database, homes: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(export_job, "run_tasks", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(source, "homes", tmp_path)
    plan = json.loads((tmp_path / "_plan.json").read_text())
    assert plan.pop("zone") == "UTC"
    (tmp_path / "_plan.json").write_text(json.dumps(plan))
    with pytest.raises(AlreadyPresentError, match="another, unfinished export: empty it"):
        export(source, "homes", tmp_path)


def test_backups_and_exports_are_for_their_user_alone(source: Database, homes: Table, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        export(source, "homes", tmp_path / "new" / "export")
        backup(source, "homes", tmp_path / "backups", workers=2)
        homes.delete({"id": [1]})
        backup(source, "homes", tmp_path / "backups")
    finally:
        os.umask(before)
    paths = [*(tmp_path / "new").rglob("*"), *(tmp_path / "backups").rglob("*"), tmp_path / "new", tmp_path / "backups"]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_tasks_run_by_an_executor_of_the_callers(source: Database, homes: Table, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert export(source, "homes", tmp_path / "out", executor=threads).rows == 500
    assert LocalExecutor(2).map(len, ["a", "bc", ""]) == [1, 2, 0]


def test_a_killed_export_is_gone_on_with(
    source: Database, homes: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = parts._write_file, []

    def write_or_die(*given: object) -> object:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(given)
        return write(*given)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(parts, "_write_file", write_or_die)
        with pytest.raises(KeyboardInterrupt):
            export(source, "homes", tmp_path, workers=1)
    homes.delete({"id": list(range(100))})
    with pytest.raises(AlreadyPresentError, match="another, unfinished export"):
        export(source, "homes", tmp_path, columns=["id"])
    made = export(source, "homes", tmp_path)
    assert made.resumed and made.rows == 500
    assert ds.dataset(tmp_path).count_rows() == 500
    assert sorted(path.name for path in tmp_path.glob("_*")) == ["_export.json"]


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("columns", [None, ["id", "city"]])
def test_an_export_does_not_mix_two_columns_of_one_name(
    source: Database,
    homes: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
    columns: list[str] | None,
) -> None:
    """Parts that are written after the column was dropped and added again have none of its cells."""
    write, written = parts._write_file, []

    def alter_between(*given: object) -> object:
        written.append(given)
        if len(written) == 2:
            homes.alter().drop_column("city").apply()
            homes.alter().add_column("city", "string").apply()
            if is_killed:
                raise KeyboardInterrupt
        return write(*given)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(parts, "_write_file", alter_between)
        with pytest.raises(KeyboardInterrupt if is_killed else ConflictError):
            export(source, "homes", tmp_path, columns=columns, workers=1)
    with pytest.raises(AlreadyPresentError, match="whose columns have changed since: empty it"):
        export(source, "homes", tmp_path, columns=columns)
    assert not (tmp_path / "_export.json").exists()


def test_an_export_goes_on_beside_a_column_that_it_lacks(
    source: Database, homes: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(export_job, "run_tasks", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(source, "homes", tmp_path, columns=["id", "city"])
    homes.alter().add_column("more", "string").apply()
    assert export(source, "homes", tmp_path, columns=["id", "city"]).resumed


def test_moments_inside_of_others_are_in_utc(source: Database, tmp_path: Path) -> None:
    """As the others are: readers take moments without a zone for readings of a clock that hangs anywhere."""
    at, zoned = pa.timestamp("us"), pa.timestamp("us", "UTC")

    def schema(kind: pa.DataType) -> pa.Schema:
        nested = [pa.list_(kind), pa.struct([("at", kind)]), pa.map_(pa.string(), pa.list_(kind)), pa.list_(kind, 1)]
        return pa.schema([("id", pa.int64()), ("at", kind), *zip(("n0", "n1", "n2", "n3"), nested, strict=True)])

    noon = dt.datetime(2020, 1, 1, 12)
    row = {"id": 1, "at": noon, "n0": [noon, None], "n1": {"at": noon}, "n2": [("k", [noon])], "n3": [noon]}
    rows = pa.Table.from_pylist([row, {"id": 2}], schema(at))
    table = source.create_table("moments", schema(at), ["id"])
    table.insert(rows)
    export(source, "moments", tmp_path)
    read = ds.dataset(tmp_path).to_table().sort_by("id")
    assert read.cast(schema(zoned)).schema.types == schema(zoned).types
    assert "timestamp[us]" not in str(read.schema) and read.cast(schema(at)).equals(rows)
    sink = io.BytesIO()
    WRITERS[".arrow"](table.scan(ordered=True).to_reader(), sink)
    stored = pa.ipc.open_file(sink.getvalue()).read_all()
    assert stored.schema.types == schema(zoned).types and stored.cast(schema(at)).equals(rows)
