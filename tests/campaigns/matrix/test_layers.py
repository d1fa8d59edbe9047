"""Cells of every type through what lies around scans: changes, aggregates, Flight, DataFrames, files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.scan import Scan
from nyala.clients.cli.output import write_scan
from nyala.flight_server.server import FlightServer
from nyala.jobs import load
from tests.campaigns.matrix.checks import checks_of, selected
from tests.campaigns.matrix.table import MatrixTable
from tests.campaigns.matrix.test_matrix import bits, check_cells


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixTable]:
    """The table with changes in memory and in files; the tests only read it."""
    made = MatrixTable(tmp_path_factory.mktemp("layers"), seed=3)
    made.reach("updated everywhere")
    yield made
    made.close()


@pytest.fixture(scope="module")
def remote(matrix: MatrixTable) -> Iterator[Database]:
    server = FlightServer(matrix.db._store, "grpc://127.0.0.1:0")
    with nyala.connect(f"grpc://127.0.0.1:{server.port}") as database:
        yield database
    server.shutdown()


def moments_of(matrix: MatrixTable) -> list[tuple[int, pa.Table]]:
    return [*matrix.past, (matrix.db.now(), matrix.rows)]


def placed(rows: pa.Table, ids: np.ndarray) -> pa.Array:
    """Return where in ``rows``, which are in the order of ids, the rows with ``ids`` are; NULL for none."""
    known = rows["id"].to_numpy()
    places = np.searchsorted(known, ids)
    absent = (places == len(known)) | (known[np.minimum(places, len(known) - 1)] != ids)
    return pa.array(np.where(absent, 0, places), mask=absent)


@pytest.mark.parametrize("where", ["embedded", "remote"])
def test_net_changes_tell_every_cell_before_and_after(matrix: MatrixTable, remote: Database, where: str) -> None:
    table = matrix.table if where == "embedded" else remote.table("matrix")
    moments = moments_of(matrix)
    for first, last in ((0, 1), (1, 2), (0, len(moments) - 1)):
        (since, old), (until, new), (_, dying) = moments[first], moments[last], moments[last - 1]
        feed = table.changes(since, until, before=True, ordered=True).to_arrow()
        ids, ops = feed["id"].to_numpy(), feed["_op"].to_numpy(zero_copy_only=False)
        assert set(ids[ops == "insert"]) == set(new["id"].to_pylist()) - set(old["id"].to_pylist())
        assert set(ids[ops == "delete"]) == set(old["id"].to_pylist()) - set(new["id"].to_pylist())
        before, after, death = placed(old, ids), placed(new, ids), placed(dying, ids)
        untouched = new.filter(pc.invert(pc.is_in(new["id"], value_set=feed["id"].combine_chunks())))
        same = placed(old, untouched["id"].to_numpy())
        for name in matrix.rows.schema.names:
            was, is_ = bits(old[name]), bits(new[name])
            assert bits(feed[f"_before_{name}"]).equals(was.take(before)), name
            assert bits(feed[name]).equals(
                pc.if_else(ops == "delete", bits(dying[name]).take(death), is_.take(after))
            ), name
            assert bits(untouched[name]).equals(was.take(same)), f"{name} changed, and the feed does not say so"


def test_every_change_begins_where_the_one_before_it_ended(matrix: MatrixTable) -> None:
    moments = moments_of(matrix)
    (since, old), (until, new) = moments[0], moments[-1]
    feed = matrix.table.changes(since, until, before=True, every=True, ordered=True).to_arrow()
    ids = feed["id"].to_numpy()
    is_deleted = feed["_op"].to_numpy(zero_copy_only=False) == "delete"
    is_first, is_last = np.diff(ids, prepend=-1) != 0, np.diff(ids, append=-1) != 0
    assert not (is_deleted & ~is_last).any() and not is_first.all()
    before = placed(old, ids[is_first])
    lives = is_last & ~is_deleted
    for name in matrix.rows.schema.names:
        was, is_ = bits(feed[f"_before_{name}"]), bits(feed[name])
        assert was.filter(is_first).equals(bits(old[name]).take(before)), name
        assert is_.filter(lives).equals(bits(new[name]).take(placed(new, ids[lives]))), name
        assert was.filter(~is_first).equals(is_.filter(~is_last)), name


def without_nan(cells: pa.Array) -> pa.Array:
    return cells.filter(pc.invert(pc.is_nan(cells))) if pa.types.is_floating(cells.type) else cells


@pytest.mark.parametrize("where", ["embedded", "remote"])
def test_aggregates_of_every_type(matrix: MatrixTable, remote: Database, where: str) -> None:
    table = matrix.table if where == "embedded" else remote.table("matrix")
    variants = matrix.variants if where == "embedded" else matrix.variants[::5]
    for moment, rows in moments_of(matrix):
        measures = {f"{f}:{v.name}": (v.name, f) for v in variants for f in ("count", "min", "max")}
        found = table.scan(as_of=moment).aggregate(measures)
        for variant in variants:
            name, cells = variant.name, rows[variant.name].combine_chunks()
            assert found[f"count:{name}"][0].as_py() == len(cells) - cells.null_count, name
            numbers = without_nan(cells.drop_null())
            if len(numbers) == 0:  # added without a default, later
                assert found[f"min:{name}"][0].as_py() is None and found[f"max:{name}"][0].as_py() is None
                continue
            order = numbers.sort() if not pa.types.is_decimal(numbers.type) else numbers.take(pc.sort_indices(numbers))
            for function, expected in (("min", order[0]), ("max", order[-1])):
                assert found.schema.field(f"{function}:{name}").type == cells.type
                mine = found[f"{function}:{name}"][0]
                assert pc.equal(mine, expected).as_py(), f"{function} of {name} is {mine}, not {expected}"


def test_sums_and_means_of_every_number(matrix: MatrixTable) -> None:
    numbers = [
        variant
        for variant in matrix.variants
        if variant.kind.logical.is_integer or variant.kind.logical.name == "decimal"
    ]
    measures = {f"{f}:{v.name}": (v.name, f) for v in numbers for f in ("sum", "avg")}
    few = {"op": "<", "column": "id", "value": 700}  # extreme decimals of 38 digits add up to more
    for where in (None, few):
        chosen = matrix.rows if where is None else matrix.rows.filter(pc.less(matrix.rows["id"], 700))
        for variant in numbers:
            scale = variant.kind.logical.scale
            cells = [unscaled(cell, scale) for cell in chosen[variant.name].to_pylist() if cell is not None]
            total = sum(cells)
            asked = {name: measure for name, measure in measures.items() if measure[0] == variant.name}
            if abs(total) >= 10**38:
                with pytest.raises(nyala.InvalidArgumentError):
                    matrix.table.scan(where=where).aggregate(asked)
                continue
            found = matrix.table.scan(where=where).aggregate(asked).to_pylist()[0]
            mine = found[f"sum:{variant.name}"]
            assert unscaled(mine, scale) == total, variant.name
            assert found[f"avg:{variant.name}"] == pytest.approx(total / 10**scale / len(cells), rel=1e-9)


def unscaled(number: int | Decimal, scale: int) -> int:
    return int(Decimal(number).scaleb(scale, Context(prec=60)))


def test_the_mean_of_large_cells_that_cancel_out(tmp_path: Path) -> None:
    large, small = Decimal("9" * 27 + ".0123456789"), Decimal("-2.15E-8")
    with nyala.open(tmp_path, maintenance="off") as db:
        table = db.create_table("t", pa.schema([("id", pa.int64()), ("c", pa.decimal128(38, 10))]), ["id"])
        table.insert({"id": [0, 1, 2], "c": [large, large.copy_negate(), small]})
        (mean,) = table.scan().aggregate({"m": ("c", "avg")})["m"].to_pylist()
    assert mean == pytest.approx(float(small) / 3, rel=1e-15)


def test_one_largest_decimal_is_its_own_sum(tmp_path: Path) -> None:
    nines = Decimal("9" * 38)
    schema = pa.schema([("id", pa.int64()), ("c", pa.decimal128(38, 0))])
    with nyala.open(tmp_path, maintenance="off") as db:
        table = db.create_table("t", schema, ["id"])
        table.insert({"id": [0, 1], "c": [nines, nines.copy_negate()]})
        for id_, total in ((0, nines), (1, nines.copy_negate())):
            assert table.scan(where=f"id = {id_}").aggregate({"s": ("c", "sum")})["s"].to_pylist() == [total]
        table.insert({"id": [2], "c": [Decimal(1)]})
        with pytest.raises(nyala.InvalidArgumentError, match="more than 38 digits"):
            table.scan(where="id <> 1").aggregate({"s": ("c", "sum")})


def test_aggregates_take_columns_whose_default_json_spells_out(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("b", pa.binary())])
    options = {"f": {"write_default": float("-inf")}, "b": {"write_default": b"\0"}}
    with nyala.open(tmp_path, maintenance="off") as db:
        table = db.create_table("t", schema, ["id"], column_options=options)
        table.insert({"id": [1, 2]})
        found = table.scan().aggregate({"f": ("f", "min"), "n": ("b", "count")}, ["b"])
        assert found.to_pylist() == [{"b": b"\0", "f": float("-inf"), "n": 2}]


def test_groups_of_every_type(matrix: MatrixTable) -> None:
    for variant in matrix.variants[::2]:
        found = matrix.table.scan().aggregate({"n": ("*", "count"), "least": ("id", "min")}, [variant.name])
        cells = canonical(matrix.rows[variant.name].combine_chunks())
        expected = (
            pa.table({"cell": cells, "id": matrix.rows["id"]})
            .group_by("cell")
            .aggregate([([], "count_all"), ("id", "min")])
        )
        mine = zip(
            canonical(found[variant.name].combine_chunks()).to_pylist(),
            found["n"].to_pylist(),
            found["least"].to_pylist(),
            strict=True,
        )
        other = zip(
            expected["cell"].to_pylist(), expected["count_all"].to_pylist(), expected["id_min"].to_pylist(), strict=True
        )
        assert sorted(mine, key=repr) == sorted(other, key=repr), variant.name


def canonical(cells: pa.Array) -> pa.Array:
    """Return cells of which equal ones are one group: one NaN, one zero; as integers where Python has no dates."""
    if pa.types.is_floating(cells.type):
        one = pc.if_else(pc.equal(cells, 0.0), pa.scalar(0.0, cells.type), cells)
        one = pc.if_else(pc.is_nan(one), pa.scalar(float("nan"), cells.type), one)
        return bits(pa.chunked_array([one]))
    return cells.view(pa.int64()) if pa.types.is_timestamp(cells.type) else cells


def test_flight_gives_the_same_cells_and_answers(matrix: MatrixTable, remote: Database) -> None:
    table = remote.table("matrix")
    assert table.schema.equals(matrix.table.schema, check_metadata=True)
    for number, (moment, rows) in enumerate(moments_of(matrix)):
        check_cells(table.scan(as_of=moment, ordered=True).to_arrow(), rows)
        ids = rows["id"].to_numpy()
        checks = [(tree, variant, mask) for variant in matrix.variants for tree, mask in checks_of(variant)]
        for tree, variant, mask in checks[number * 31 :: 211]:
            found = table.scan(["id"], where=tree, as_of=moment).to_arrow()["id"].to_numpy()
            expected = ids[selected(mask(rows[variant.name].combine_chunks()))]
            assert np.array_equal(np.sort(found), expected), tree


def copy_of(matrix: MatrixTable, db: Database, name: str, columns: list[str]) -> nyala.Table:
    """Make an empty table of some of the columns."""
    options = {v.name: {"type": v.kind.word} for v in matrix.variants if v.kind.logical.name == "varchar"}
    return db.create_table(
        name, pa.schema([matrix.table.schema.field(column) for column in columns]), ["id"], column_options=options
    )


FORMS: dict[str, Callable[[Scan], Any]] = {
    "pandas": lambda scan: scan.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda scan: scan.to_polars(),
    "stream": lambda scan: scan,
    "reader": lambda scan: scan.to_reader(),
    "rows": lambda scan: scan.to_arrow().to_pylist(),
}
NO_TEXT = {
    ".parquet": (),
    ".arrow": (),
    ".csv": ("binary", "timestamp[us]"),
    ".jsonl": ("binary", "timestamp[us]", "float", "double"),
}
"""Types with cells that a format has no words for: bytes that are no UTF-8, moments past the year 9999, NaN."""


@pytest.mark.parametrize("form", FORMS)
def test_rows_survive_other_libraries(matrix: MatrixTable, remote: Database, tmp_path: Path, form: str) -> None:
    columns = matrix.table.schema.names
    if form == "rows":  # Python has no datetimes for some of the moments
        columns = [field.name for field in matrix.table.schema if not pa.types.is_timestamp(field.type)]
    data = FORMS[form](matrix.table.scan(columns, where="id < 500 or id >= 2400"))
    expected = matrix.rows.select(columns)
    expected = expected.filter(pc.or_(pc.less(expected["id"], 500), pc.greater_equal(expected["id"], 2400)))
    if form == "reader":
        data = data.read_all()
    with nyala.open(tmp_path, maintenance="off") as db:
        for other in (db, remote):
            copy = copy_of(matrix, other, form, columns)
            copy.insert(data)
            check_cells(copy.scan(ordered=True).to_arrow(), expected)


@pytest.mark.parametrize("suffix", NO_TEXT)
def test_files_that_the_command_line_writes_are_loaded_as_they_were(
    matrix: MatrixTable, tmp_path: Path, suffix: str
) -> None:
    left_out = {variant.name for variant in matrix.variants if variant.kind.word in NO_TEXT[suffix]}
    columns = [name for name in matrix.table.schema.names if name not in left_out]
    file = tmp_path / f"rows{suffix}"
    assert write_scan(matrix.table.scan(columns), file) == matrix.rows.num_rows
    with nyala.open(tmp_path / "store", maintenance="off") as db:
        copy = copy_of(matrix, db, "copy", columns)
        assert load(db, "copy", file, op="insert").applied == matrix.rows.num_rows
        check_cells(copy.scan(ordered=True).to_arrow(), matrix.rows.select(columns))


def test_rows_as_json_have_moments_that_python_has_no_datetime_for(matrix: MatrixTable, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    write_scan(matrix.table.scan(["id", "timestamp_plain_full"], ordered=True), file)
    found = [json.loads(line)["timestamp_plain_full"] for line in file.read_text().splitlines()]
    expected = matrix.rows["timestamp_plain_full"].combine_chunks().view(pa.int64()).to_pylist()
    whole = [cell for cell in found if isinstance(cell, int)]
    assert whole == [cell for cell in expected if not -62_135_596_800_000_000 <= cell <= 253_402_300_799_999_999]
    assert whole
