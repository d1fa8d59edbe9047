"""Single rows of tables that servers share: the short ways are taken, and mean what the general ones mean."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.clients.cluster.writing import PlacedWrite
from nyala.engine.table.small.row_writes import RowWrites
from nyala.engine.tablet.point_read import UndecidedError
from nyala.schemas.errors import RowErrors, WrongServerError
from nyala.schemas.rows.write import WriteCommand
from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string(), False), ("n", pa.int64())])
RANGES = nyala.range("id", bounds=[(None, 0), (0, 50), (50, 90)])


def shared(pair: Pair) -> Table:
    return pair.db.create_table("t", SCHEMA, ["id", "name"], partition_by=[nyala.hash("name", buckets=4), RANGES])


def test_each_server_reads_and_writes_rows_of_its_own_natively(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    table = shared(pair)
    about = table._description
    written: list[object] = []
    write = RowWrites.write

    def noted(self: RowWrites, *given: Any) -> Any:
        written.append(write(self, *given))
        return written[-1]

    monkeypatch.setattr(RowWrites, "write", noted)
    homes = set()
    for number in range(40):
        row = {"id": number, "name": f"x{number}", "n": number}
        table.upsert([row])
        key = [row["id"], row["name"]]
        for name, gateway in pair.gateways.items():
            assert gateway.get_row(about, key) == row
            store = pair.stores[name]
            try:
                in_plan_lane = store._catalog.table("t").get_row(about, key, store._mvcc.snapshot, store.options.limits)
                assert in_plan_lane == row
                homes.add(name)
            except UndecidedError:
                with pytest.raises(WrongServerError):
                    store.get_row(about, key)
    assert homes == {"a", "b"}
    assert len(written) == 40 and None not in written[20:]  # the first rows of a tablet take the batch lane


def test_a_row_of_another_server_is_refused_and_not_stored(pair: Pair) -> None:
    table = shared(pair)
    row = pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([1])], schema=SCHEMA)
    (home,) = pair.db._store._cache.of("t").by_server(row)  # type: ignore[attr-defined]
    other = "b" if home == "a" else "a"
    with pytest.raises(WrongServerError, match=f"'{home}'"):
        pair.stores[other].write(WriteCommand(table="t"), row)
    assert table.scan().count() == 0


def test_single_rows_and_batches_agree(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random operations, by the short way and by lanes: the same answers and rows."""
    short, general = (
        shared(pair),
        pair.db.create_table("general", SCHEMA, ["id", "name"], partition_by=[nyala.hash("name", buckets=4), RANGES]),
    )
    random = Random(5)
    for _ in range(300):
        row = {"id": random.randrange(-20, 120), "name": random.choice(["a", "b", "\u00e9", "x" * 200]), "n": 1}
        verb = random.choice(["insert", "upsert", "update", "delete_ignore", "insert_ignore"])
        given = {name: row[name] for name in ("id", "name")} if verb == "delete_ignore" else row
        assert outcome(short, verb, given) == outcome(general, verb, given, PlacedWrite)
        key = (row["id"], row["name"])
        assert short.get(key) == short_of(short.get_many([key])) == short_of(general.get_many([key]))
    assert short.scan(ordered=True).to_arrow().equals(general.scan(ordered=True).to_arrow())
    assert 10 < short.scan().count() < 300


def outcome(table: Table, verb: str, row: dict[str, Any], lanes: type[PlacedWrite] | None = None) -> object:
    """Write a row; return what is told about it."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            if lanes:
                patch.setattr(type(table._store), "_write_one", lambda *_: None)
                patch.setattr(type(table._store), "write_row", lambda *_: None)
            done = getattr(table, verb)([row])
        return done.rows, done.applied, done.ignored
    except RowErrors as error:
        return [(each.row, each.code) for each in error.result.errors]


def short_of(found: pa.Table) -> dict[str, Any] | None:
    return found.to_pylist()[0] if found.num_rows else None


@pytest.mark.parametrize("writer", [None, "w"])
def test_rows_follow_their_tablet(cluster: Cluster, writer: str | None) -> None:
    """Gets and writes by a client that knows the old places reach a tablet that has moved; a numbered one once."""
    old, mover = cluster.connect("a"), cluster.connect("b")
    table = old.create_table("t", SCHEMA, ["id", "name"], partition_by=[nyala.hash("name", buckets=4)])
    names = [f"x{number}" for number in range(12)]
    write(table, names, 1, writer)
    for place in mover.table("t").tablets():
        mover.move_tablet("t", place.tablet, "b" if place.server == "a" else "a", place.server)
    assert [table.get((1, name)) for name in names] == [{"id": 1, "name": name, "n": 1} for name in names]
    write(table, names, 1, writer)
    if writer:
        table.update([{"id": 1, "name": name, "n": 2} for name in names])
        write(table, names, 1, writer)  # sent again: not applied again
        assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {2}
    else:
        write(table, names, 3, None)
        assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {3}


def write(table: Table, names: Sequence[str], n: int, writer: str | None) -> None:
    for number, name in enumerate(names):
        how = {"writer": writer, "seq": number} if writer else {}
        table.upsert([{"id": 1, "name": name, "n": n}], **how)  # type: ignore[arg-type]
