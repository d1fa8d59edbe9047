"""Statements of a store in this process, for tests: trees of them, how often they read, and rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from nyala.clients.sql.change.changes import Changes
from nyala.clients.sql.change.transaction import SqlTransaction
from nyala.clients.sql.change.writing import Changed
from nyala.clients.sql.engine import SqlEngine
from nyala.clients.sql.text.dialect import NyalaSql
from nyala.engine.store import Store
from nyala.schemas.rows.scan import ScanSpec


class SmallSql:
    """SQL over a store in this process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.engine = SqlEngine(store)
        self.changes = Changes(store, self.read)
        self.reads = 0

    def read(self, query: exp.Query, moment: int, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Run a query at a snapshot."""
        self.reads += 1
        return self.engine.read(query, moment, tables)

    def run(self, text: str) -> Changed:
        """Run the statements of a text; return what the last did."""
        *first, last = parse(text)
        for tree in first:
            self.changes.run(tree)
        return self.changes.run(last)

    def begin(self) -> SqlTransaction:
        return SqlTransaction(self.store, self.read)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows in the order of the key."""
        return self.store.scan(ScanSpec(table=table, ordered=True)).to_table().to_pylist()


def parse(text: str) -> list[exp.Expr]:
    """Return the statements of a text."""
    return [tree for tree in sqlglot.parse(text, dialect=NyalaSql) if tree is not None]
