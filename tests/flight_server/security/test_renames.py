"""Renames between the check of a request and its work: what is done is done to the table whose grants were checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.guarded_store import GuardedStore
from nyala.flight_server.security.rights import Caller, GrantBook, Rights
from nyala.schemas.errors import ConflictError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.statement import Statement, StatementKind
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.bulk import ImportBegin
from nyala.schemas.store.direct import PinSnapshot
from nyala.schemas.store.grants import Grant, GrantChange, Privilege
from nyala.schemas.table.alter import AddColumn, Alteration, DropColumn, RenameColumn, RenameTable, SetOption
from nyala.schemas.table.table import TableDefinition
from tests.flight_server.guarded import Guarded

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
ROW = {"k": 7, "v": "by alice"}
BATCH = pa.RecordBatch.from_pylist([ROW], SCHEMA)
COMMAND = WriteCommand(table="open", op=Operation.UPSERT)
NUMBERED = COMMAND.model_copy(update={"writer": "w"})
STAGED = COMMAND.model_copy(update={"stage": Stage(transaction="tx", part="p")})
DELETION = Statement(table="open", kind=StatementKind.DELETE, where="k > 0")


def renames(store: Store) -> None:
    """Give the name of a table with grants to one without."""
    for name, to in (("open", "old"), ("secret", "open")):
        store.alter_table(Alteration(table=name, steps=[RenameTable(op="rename", to=to)]))


def exchanges(store: Store) -> None:
    """Let two columns exchange their names."""
    for name, to in (("seen", "x"), ("hidden", "seen"), ("x", "hidden")):
        store.alter_table(Alteration(table="columns", steps=[RenameColumn(op="rename_column", name=name, to=to)]))


class RenamingStore:
    """A store whose tables or columns change their names just before a method, when the guard has checked a request and
    passes it on."""

    def __init__(self, store: Store, method: str, change: Callable[[Store], None] = renames) -> None:
        self._store = store
        self._method = method
        self._change = change

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._method = ""
            self._change(self._store)
        return getattr(self._store, name)


@pytest.fixture
def store() -> Store:
    made = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    for name in ("open", "secret"):
        made.create_table(TableDefinition.from_arrow(name, SCHEMA, ["k"]))
        made.write(WriteCommand(table=name), pa.RecordBatch.from_pylist([{"k": 1, "v": f"of {name}"}], SCHEMA))
    made.grant(GrantChange(user="alice", table="open", privileges=[Privilege.ADMIN]))
    return made


REQUESTS: dict[str, Callable[[GuardedStore], object]] = {
    "write_row": lambda guarded: guarded.write_row(COMMAND, ROW),
    "begin_row": lambda guarded: guarded.begin_row(COMMAND, ROW),
    "planned_row": lambda guarded: guarded.planned_row(NUMBERED, ROW, 1),
    "begin_write": lambda guarded: guarded.begin_write(COMMAND, BATCH),
    "stage": lambda guarded: guarded.stage(STAGED, [StagedBatch(BATCH)]),
    "execute": lambda guarded: guarded.execute(DELETION),
    "commit_transaction": lambda guarded: guarded.commit_transaction(
        TransactionCommit(transaction="tx", parts=[], truncate=["open"])
    ),
    "look_up": lambda guarded: guarded.look_up("open", BATCH.select(["k"])),
    "get_row": lambda guarded: guarded.get_row(guarded.describe_table("open"), [1]),
    "plan": lambda guarded: guarded.plan(ScanSpec(table="open")),
    "commits": lambda guarded: guarded.commits("open"),
    "table_stats": lambda guarded: guarded.table_stats("open"),
    "last_change": lambda guarded: guarded.last_change("open"),
    "alter_table": lambda guarded: guarded.alter_table(
        Alteration(table="open", steps=[SetOption(op="set_option", option="compression", value="zstd")])
    ),
    "drop_table": lambda guarded: guarded.drop_table("open"),
    "maintain": lambda guarded: guarded.maintain("open", "flush"),
    "import_begin": lambda guarded: guarded.import_begin(ImportBegin(table="open")),
    "pin_snapshot": lambda guarded: guarded.pin_snapshot(PinSnapshot(table="open")),
    "grant": lambda guarded: guarded.grant(GrantChange(user="bob", table="open", privileges=[Privilege.READ])),
    "revoke": lambda guarded: guarded.revoke(GrantChange(user="alice", table="open", privileges=[Privilege.READ])),
}


@pytest.mark.parametrize("method", REQUESTS)
def test_a_name_means_the_table_whose_grants_were_checked(store: Store, method: str) -> None:
    renaming: Any = RenamingStore(store, method)
    guarded = GuardedStore(renaming, Caller("alice"), GrantBook(store), None)
    with pytest.raises(ConflictError, match="table 'open' was renamed or dropped during the request"):
        REQUESTS[method](guarded)
    assert store.scan(ScanSpec(table="open")).to_table().to_pylist() == [{"k": 1, "v": "of secret"}]
    assert store.scan(ScanSpec(table="old")).to_table().to_pylist() == [{"k": 1, "v": "of open"}]
    assert [(each.user, each.table) for each in store.grants()] == [("alice", "old")]


def test_parts_are_committed_by_the_rights_on_their_tables(store: Store) -> None:
    """The names of parts are read before the rights on them."""
    store.stage(WriteCommand(table="secret", stage=Stage(transaction="tx", part="p")), [StagedBatch(BATCH)])

    class Parts(RenamingStore):
        def staged_parts(self, transaction: str) -> Any:
            shapes = store.staged_parts(transaction)
            if self._method:
                self._method = ""
                for name, to in (("secret", "x"), ("open", "secret")):
                    store.alter_table(Alteration(table=name, steps=[RenameTable(op="rename", to=to)]))
            return shapes

    parts: Any = Parts(store, "none")
    guarded = GuardedStore(parts, Caller("alice"), GrantBook(store), None)
    with pytest.raises(nyala.PermissionDeniedError, match="may not write all parts"):
        guarded.commit_transaction(TransactionCommit(transaction="tx", parts=["p"]))
    assert store.scan(ScanSpec(table="x")).to_table().num_rows == 1


def test_who_has_grants_on_all_tables_is_not_refused(store: Store) -> None:
    store.revoke(GrantChange(user="alice", table="open", privileges=[Privilege.ADMIN]))
    store.grant(GrantChange(user="alice", table="*", privileges=[Privilege.INSERT, Privilege.UPDATE]))
    renaming: Any = RenamingStore(store, "write_row")
    guarded = GuardedStore(renaming, Caller("alice"), GrantBook(store), None)
    answer = guarded.write_row(COMMAND, ROW)
    assert answer is not None and answer.applied == 1


def test_a_write_over_flight_meets_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = Guarded(tmp_path)
    try:
        for name in ("open", "secret"):
            guarded.store.create_table(TableDefinition.from_arrow(name, SCHEMA, ["k"]))
        guarded.set_grants({"insert": frozenset("kv"), "update": frozenset("kv")}, "open")
        check = GuardedStore._check_write

        def once(self: GuardedStore, *given: Any, **named: Any) -> Any:
            monkeypatch.undo()
            rights = check(self, *given, **named)
            renames(guarded.store)
            return rights

        monkeypatch.setattr(GuardedStore, "_check_write", once)
        with nyala.connect(guarded.served.url, token=guarded.user_token) as db:
            with pytest.raises(nyala.ConflictError, match="was renamed or dropped during the request"):
                db.table("open").upsert([ROW])
            with pytest.raises(nyala.NotFoundError):
                db.table("open").upsert([ROW])
            assert db.table("old").upsert([ROW]).applied == 1
        assert guarded.store.scan(ScanSpec(table="open")).to_table().num_rows == 0
    finally:
        guarded.close()


COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("seen", pa.int64()), ("hidden", pa.int64())])
CHANGED = {"k": 1, "seen": 7}
OF_COLUMNS = WriteCommand(table="columns", op=Operation.UPDATE, writer="w")

COLUMN_REQUESTS: dict[str, tuple[str, Callable[[GuardedStore], object]]] = {
    "write_row": ("write_row", lambda guarded: guarded.write_row(OF_COLUMNS, CHANGED)),
    "begin_row": ("begin_row", lambda guarded: guarded.begin_row(OF_COLUMNS, CHANGED)),
    "planned_row": ("planned_row", lambda guarded: guarded.planned_row(OF_COLUMNS, CHANGED, 1)),
    "a row": ("begin_write", lambda guarded: guarded.begin_write(OF_COLUMNS, batch_of(1))),
    "a few rows": ("begin_write", lambda guarded: guarded.begin_write(OF_COLUMNS, batch_of(3))),
    "many rows": ("begin_write", lambda guarded: guarded.begin_write(OF_COLUMNS, batch_of(5_000))),
    "update_where": (
        "execute",
        lambda guarded: guarded.execute(Statement(table="columns", kind=StatementKind.UPDATE, set={"seen": "7"})),
    ),
    "delete_where": (
        "execute",
        lambda guarded: guarded.execute(Statement(table="columns", kind=StatementKind.DELETE, where="seen = 100")),
    ),
    "plan": ("plan", lambda guarded: guarded.plan(ScanSpec(table="columns", columns=["k"], where="seen = 100"))),
}


def batch_of(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": key, "seen": 7} for key in range(1, rows + 1)], COLUMNS).select(
        ["k", "seen"]
    )


@pytest.fixture
def columns(store: Store) -> Store:
    """A table of which a user may read and change one column beside the key, and delete rows."""
    store.create_table(TableDefinition.from_arrow("columns", COLUMNS, ["k"]))
    store.write(
        WriteCommand(table="columns"), pa.RecordBatch.from_pylist([{"k": 1, "seen": 1, "hidden": 100}], COLUMNS)
    )
    for privileges, names in (
        ([Privilege.READ], ["k", "seen"]),
        ([Privilege.UPDATE], ["seen"]),
        ([Privilege.DELETE], None),
    ):
        store.grant(GrantChange(user="alice", table="columns", privileges=privileges, columns=names))
    return store


def all_rows(store: Store) -> list[dict[str, Any]]:
    return store.scan(ScanSpec(table="columns")).to_table().to_pylist()


@pytest.mark.parametrize("request_", COLUMN_REQUESTS)
@pytest.mark.parametrize("change", ["exchange", "add"])
def test_a_name_means_the_column_whose_grants_were_checked(columns: Store, request_: str, change: str) -> None:
    """A column that came meanwhile had no grants either."""

    def adds(store: Store) -> None:
        steps = [DropColumn(op="drop_column", name="seen"), AddColumn(op="add_column", name="seen", type="int64")]
        store.alter_table(Alteration(table="columns", steps=steps))

    method, ask = COLUMN_REQUESTS[request_]
    renaming: Any = RenamingStore(columns, method, exchanges if change == "exchange" else adds)
    guarded = GuardedStore(renaming, Caller("alice"), GrantBook(columns), None)
    with pytest.raises(ConflictError, match="columns of table 'columns' were altered during the request"):
        ask(guarded)
    after = {"k": 1, "seen": 100, "hidden": 1} if change == "exchange" else {"k": 1, "hidden": 100, "seen": None}
    assert all_rows(columns) == [after]


@pytest.mark.parametrize("request_", COLUMN_REQUESTS)
def test_columns_that_exchange_names_during_the_check_are_not_taken_for_another(columns: Store, request_: str) -> None:
    _, ask = COLUMN_REQUESTS[request_]
    renaming: Any = RenamingStore(columns, "describe_table", exchanges)
    guarded = GuardedStore(renaming, Caller("alice"), GrantBook(columns), None)
    with pytest.raises(nyala.PermissionDeniedError, match=r"no grant to (update|read) on column 'seen'"):
        ask(guarded)
    assert all_rows(columns) == [{"k": 1, "seen": 100, "hidden": 1}]


@pytest.mark.parametrize("request_", COLUMN_REQUESTS)
def test_columns_that_keep_their_names_are_written_while_their_table_is_altered(columns: Store, request_: str) -> None:
    def alters(store: Store) -> None:
        store.alter_table(
            Alteration(table="columns", steps=[SetOption(op="set_option", option="comment", value="altered")])
        )

    method, ask = COLUMN_REQUESTS[request_]
    renaming: Any = RenamingStore(columns, method, alters)
    ask(GuardedStore(renaming, Caller("alice"), GrantBook(columns), None))


def test_grants_on_tables_that_had_one_name_in_turn_are_not_added_up() -> None:
    """While grants are listed, a table may lose its name to another."""
    grants = [Grant(user="alice", table="open", table_id=1, privilege=Privilege.DELETE)]
    grants.append(Grant(user="alice", table="open", table_id=2, privilege=Privilege.READ))
    rights = Rights(Caller("alice"), grants).of("open")
    assert (rights.table_id, list(rights.privileges)) == (2, [Privilege.READ])
