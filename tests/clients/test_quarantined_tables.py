"""A tablet in quarantine over Flight: clients, jobs and readers outside are told which file is damaged, and go on."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.jobs import backup, export, restore
from nyala.schemas.errors import CorruptionError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
BATCH = pa.record_batch({"k": pa.array([1, 150], pa.int64()), "v": pa.array([1, 1], pa.int64())})
NUMBERED = WriteCommand(table="t", op=Operation.UPSERT, writer="a writer")


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[Database, str]]:
    """A client of a server that has a table of two ranges, of which the file of the lower one is damaged."""
    home = tmp_path / "store"
    options = StoreOptions(maintenance="off")
    with Store.open(home, options) as store:
        db = Database(store)
        cut = [nyala.range("k", bounds=[((0,), (100,)), ((100,), (200,))])]
        table = db.create_table("t", SCHEMA, primary_key=["k"], partition_by=cut)
        first = store.write(NUMBERED, BATCH, 1)
        table.maintain("flush")
        assert first.applied == 2
    file = min(home.rglob("*.base"))
    file.write_bytes(file.read_bytes()[:-1])
    with Store.open(home, options) as store:
        server = FlightServer(store, "grpc://127.0.0.1:0")
        with nyala.connect(f"grpc://127.0.0.1:{server.port}") as db:
            yield db, str(file.relative_to(home))
        server.shutdown()


def test_clients_are_told_the_file_and_go_on(damaged: tuple[Database, str], tmp_path: Path) -> None:
    db, file = damaged
    table = db.table("t")
    for work in (
        lambda: table.scan().to_arrow(),
        lambda: table.get((1,)),
        lambda: table.upsert({"k": [2, 102], "v": [2, 2]}),
        lambda: table.direct_scan(directory=tmp_path / "store").to_arrow(),
        lambda: backup(db, "t", tmp_path / "backups"),
        lambda: export(db, "t", tmp_path / "exported"),
    ):
        with pytest.raises(CorruptionError, match=f"{file} .*nyala repair") as caught:
            work()
        assert str(tmp_path) not in caught.value.message
    health = db._store.health()
    assert health.status == "degraded" and [each.path for each in health.damaged] == [file]
    assert table.scan(where="k >= 100").to_arrow().to_pylist() == [{"k": 150, "v": 1}]
    table.upsert({"k": [102], "v": [2]})
    assert table.get((102,)) == {"k": 102, "v": 2}


def test_a_write_that_is_sent_again_gets_its_first_answer(damaged: tuple[Database, str]) -> None:
    db, _ = damaged
    again = db._store.write(NUMBERED, BATCH, 1)
    assert again.applied == 2, "it was applied before the file was damaged"
    with pytest.raises(CorruptionError):
        db._store.write(NUMBERED, BATCH, 2)
    only = BATCH.slice(1)
    assert db._store.write(NUMBERED, only, 2).applied == 1, "what was refused has used up no number"


def test_a_table_is_restored_beside_the_damaged_one(tmp_path: Path) -> None:
    home = tmp_path / "store"
    with nyala.open(home, maintenance="off") as db:
        db.create_table("t", SCHEMA, primary_key=["k"]).upsert({"k": [1, 2], "v": [3, 4]})
        db.table("t").maintain("flush")
        backup(db, "t", tmp_path / "backups")
    file = min(home.rglob("*.base"))
    file.write_bytes(file.read_bytes()[:-1])
    with nyala.open(home, maintenance="off") as db:
        with pytest.raises(CorruptionError):
            db.table("t").scan().to_arrow()
        db.drop_table("t", keep_seconds=3600)
        restore(db, tmp_path / "backups", "t")
        assert db.table("t").scan(ordered=True).to_arrow().to_pydict() == {"k": [1, 2], "v": [3, 4]}
        db.recall_table("t", "damaged one")
        with pytest.raises(CorruptionError):
            db.table("damaged one").scan().to_arrow()
