"""A process that was cut off from its bucket still answers, while another one has the store: no call ends there.

It does not know that it lost the store, and its definitions are those of before. What it may refuse, and whether it may
carry out a change, only the next holder knows, and clients go there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.flight.store import FlightStore
from nyala.engine.store import Store
from nyala.schemas.errors import ConflictError, InvalidArgumentError, UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.statement import Statement, StatementKind
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.bulk import ImportBegin
from nyala.schemas.store.moving import MoveState
from tests.doubles.cut_off import cut_off
from tests.doubles.machines import OPTIONS, Machine
from tests.doubles.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROW = pa.record_batch([pa.array([5], pa.int64()), pa.array([5], pa.int64())], schema=SCHEMA)


def writing(table: str, part: str | None = None) -> WriteCommand:
    stage = Stage(transaction="load", part=part) if part else None
    return WriteCommand(table=table, op=Operation.INSERT, stage=stage)


def committed(store: Any) -> bool:
    """Commit what was staged at the next holder."""
    return store.commit_transaction(TransactionCommit(transaction="load", parts=["p"])).applied == 1


def unknown_round(store: Any) -> bool:
    with pytest.raises(ConflictError):
        store.move_round("m")
    return True


def statement(store: Any) -> bool:
    return store.execute(Statement(kind=StatementKind.DELETE, table="new", where="id = 9")).applied == 0


CALLS: dict[str, Callable[[Any], Any]] = {
    "create": lambda store: Database(store).create_table("made", SCHEMA, ["id"]),
    "create what the next one has dropped": lambda store: Database(store).create_table("gone", SCHEMA, ["id"]),
    "alter": lambda store: Database(store).table("altered").alter().rename("other").apply(),
    "drop": lambda store: store.drop_table("dropped") is None,
    "drop what the next one has created": lambda store: store.drop_table("new and dropped") is None,
    "recall what the next one has dropped": lambda store: store.recall_table("kept").name == "kept",
    "maintain": lambda store: store.maintain("rows", "flush"),
    "maintain what the next one has created": lambda store: store.maintain("new", "flush"),
    "describe what the next one has created": lambda store: store.describe_table("new").name == "new",
    "commits of what the next one has created": lambda store: store.commits("new").num_rows >= 0,
    "write": lambda store: store.write(writing("new"), ROW).applied == 1,
    "stage": lambda store: store.stage(writing("new", "q"), [StagedBatch(ROW, None)]).rows == 1,
    "staged parts": lambda store: store.staged_parts("other") != [],
    "commit": committed,
    "statement": statement,
    "begin an import": lambda store: store.import_begin(ImportBegin(table="rows")).import_id,
    "create a pin": lambda store: Database(store).create_pin("kept-here"),
    "drop a pin": lambda store: Database(store).drop_pin("of-the-next-one") is None,
    "moves": lambda store: not store.moves("rows").left,
    "state of a move": lambda store: store.move_status("m").state is MoveState.UNKNOWN,
    "round of a move": unknown_round,
}


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """Two holders, the former of which is cut off; clients that are connected to it, and the next one."""
    clients: dict[str, FlightStore] = {}

    def connect(pair: Pair) -> None:
        clients.update({call: FlightStore(pair.url) for call in CALLS})

    names = ("rows", "gone", "altered", "dropped", "kept")
    with cut_off(lambda db: [db.create_table(name, SCHEMA, ["id"]) for name in names], connect) as (pair, following):
        database = Database(following)
        for name in ("new", "new and dropped"):
            database.create_table(name, SCHEMA, ["id"])
        database.drop_table("gone")
        following.drop_table("kept", keep_seconds=1_000)
        database.create_pin("of-the-next-one")
        following.stage(writing("rows", "p"), [StagedBatch(ROW, None)])
        other = Stage(transaction="other", part="p")
        following.stage(WriteCommand(table="rows", op=Operation.INSERT, stage=other), [StagedBatch(ROW, None)])
        yield SimpleNamespace(pair=pair, clients=clients, former=pair.store)
    for client in clients.values():
        client.close()


@pytest.mark.parametrize("call", CALLS)
def test_a_former_holder_sends_each_call_on(machines: Any, call: str) -> None:
    client = cast(FlightStore, machines.clients[call])
    assert client.whereabouts().holder.process == machines.pair.first.process  # pyright: ignore[reportOptionalMemberAccess]
    assert CALLS[call](client)
    assert client.whereabouts().holder.process == machines.pair.second.process  # pyright: ignore[reportOptionalMemberAccess]


def test_what_a_former_holder_does_not_do_is_not_done(machines: Any) -> None:
    """The error says so: a client may ask the next one."""
    before = machines.former.tables()
    for ask in (
        lambda: machines.former.drop_table("dropped"),
        lambda: Database(machines.former).create_table("more", SCHEMA, ["id"]),
        lambda: machines.former.maintain("rows", "flush"),
    ):
        with pytest.raises(UnavailableError, match="does not know the current state") as refused:
            ask()
        assert refused.value.locations == []
    assert machines.former.tables() == before


@pytest.mark.parametrize("call", ["a row", "rows", "a statement"])
def test_a_write_that_finds_its_process_replaced_waits_for_the_next_one(call: str) -> None:
    """It is refused by its log, by a process that still says that it has the store, and nobody else does yet."""
    machine = Machine()
    former = Store.open(machine.home(), OPTIONS)
    Database(former).create_table("rows", SCHEMA, ["id"]).insert([{"id": 1, "v": 1}])
    pair = Pair(former)
    with nyala.connect(pair.url) as database:
        table = database.table("rows")
        machine.objects.is_away = True
        with Store.open(machine.other().home(), OPTIONS) as following:
            machine.boot.leap_seconds = 0.0
            machine.objects.is_away = False
            pair.second.become(following)
            threading.Timer(1.5, pair.give_to, (pair.second,)).start()
            if call == "a row":
                table.insert([{"id": 5, "v": 5}])
            elif call == "rows":
                table.insert([{"id": each, "v": 5} for each in range(5, 200)])
            else:
                table.update_where({"v": "v + 1"}, "id = 1")
            assert sum(Database(following).table("rows").scan().to_arrow()["v"].to_pylist()) in (2, 6, 1 + 5 * 195)
    pair.close()
    with suppress(UnavailableError):
        former.close()


def test_a_closed_store_of_a_bucket_may_be_elsewhere() -> None:
    store = Store.open(Machine().home(), OPTIONS)
    store.close()
    with pytest.raises(UnavailableError, match="closed") as refused:
        store.tables()
    assert refused.value.locations == []


def test_a_store_in_a_directory_refuses_for_good(store: Store) -> None:
    with pytest.raises(InvalidArgumentError):
        store.maintain("rows", "shrink")
    store.close()
    with pytest.raises(UnavailableError, match="closed") as refused:
        store.tables()
    assert refused.value.locations is None
