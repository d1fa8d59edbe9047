"""Renames while a statement is planned: its rows go to the table that was planned for, or nowhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.flight.store import FlightStore
from nyala.clients.sql.change.changes import Changes
from nyala.engine.store import Store
from nyala.schemas.errors import ConflictError
from nyala.schemas.rows.write import WriteCommand, WriteResult
from nyala.schemas.table.alter import Alteration, RenameTable

from .small_reader import SmallSql, parse

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("n", pa.int64())])


class RenamingStore:
    """A store in which two tables exchange their names just before a method, once."""

    def __init__(self, store: Any, method: str) -> None:
        self._store = store
        self._method = method

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._method = ""
            for old, new in (("t", "x"), ("u", "t"), ("x", "u")):
                self._store.alter_table(Alteration(table=old, steps=[RenameTable(op="rename", to=new)]))
        return getattr(self._store, name)


@pytest.fixture(params=["here", "over Flight"])
def asked(request: pytest.FixtureRequest, store: Store, url: str) -> Any:
    """The store as a statement asks it."""
    if request.param == "here":
        yield store
        return
    remote = FlightStore(url)
    yield remote
    remote.close()


@pytest.fixture
def tables(sql: SmallSql) -> SmallSql:
    """Two tables that a statement cannot tell apart but by their rows."""
    sql.run(
        "CREATE TABLE t (k bigint PRIMARY KEY, n bigint); CREATE TABLE u (k bigint PRIMARY KEY, n bigint);"
        "INSERT INTO t VALUES (1, 10); INSERT INTO u VALUES (1, 11)"
    )
    return sql


@pytest.mark.parametrize("text", ["UPDATE t SET n = n + 1 WHERE k = 1", "DELETE FROM t WHERE k = 1"])
def test_a_statement_of_the_store_changes_no_table_that_got_the_name(tables: SmallSql, asked: Any, text: str) -> None:
    changes = Changes(RenamingStore(asked, "execute"), tables.read)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConflictError, match="table 't' was renamed or dropped"):
        changes.run(parse(text)[0])
    assert (tables.rows("t"), tables.rows("u")) == ([{"k": 1, "n": 11}], [{"k": 1, "n": 10}])


def test_a_statement_that_has_read_is_tried_again_with_the_table_that_got_the_name(
    tables: SmallSql, asked: Any
) -> None:
    changes = Changes(RenamingStore(asked, "write"), tables.read)  # pyright: ignore[reportArgumentType]
    done = changes.run(parse("INSERT INTO t SELECT k + 1, n FROM t")[0])
    assert done.count == 1
    assert tables.rows("t") == [{"k": 1, "n": 11}, {"k": 2, "n": 11}]
    assert tables.rows("u") == [{"k": 1, "n": 10}]


def written(asked: Any, command: WriteCommand, row: dict[str, int]) -> WriteResult:
    return asked.write_row(command, row) or asked.write(command, pa.RecordBatch.from_pylist([row], SCHEMA))


def test_a_row_by_a_session_is_for_the_table_that_is_meant(tables: SmallSql, asked: Any) -> None:
    """Also where the same row went to another one before."""
    meant, other = (WriteCommand(table="t", table_id=tables.store.describe_table(name).table_id) for name in ("t", "u"))
    row = {"k": 2, "n": 20}
    for _ in range(2):
        assert written(asked, meant, row).applied == 1
        with pytest.raises(ConflictError, match="table 't' was renamed or dropped"):
            written(asked, other, row)
    assert tables.rows("u") == [{"k": 1, "n": 11}]
