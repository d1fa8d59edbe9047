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
from nyala.flight_server.security.rights import Caller, GrantBook
from nyala.schemas.errors import ConflictError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.statement import Statement, StatementKind
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.bulk import ImportBegin
from nyala.schemas.store.direct import PinSnapshot
from nyala.schemas.store.grants import GrantChange, Privilege
from nyala.schemas.table.alter import Alteration, RenameTable, SetOption
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


class RenamingStore:
    """A store whose tables change their names when the guard has checked a request and passes it on."""

    def __init__(self, store: Store, method: str) -> None:
        self._store = store
        self._method = method

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._method = ""
            renames(self._store)
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
