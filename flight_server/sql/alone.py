"""Queries that the store answers alone: they need no child process, and read as a scan does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from ...clients.sql.one_table import Planned
from ...clients.sql.parameters import parameter_types
from ...clients.sql.statement import Kind, Statement, statement
from ...schemas.errors import StoreError
from ...schemas.protocol.service import ScanStream, StoreService
from ...schemas.store.description import TableDescription

_TEXT_MAX = 4096
"""A longer text is parsed in a child: that holds the interpreter lock."""


class Alone(NamedTuple):
    """A query of Flight SQL that needs no child process: of one table, and the table."""

    query: Statement
    table: TableDescription
    planned: Planned

    @property
    def parameters(self) -> pa.Schema:
        """A field for each parameter."""
        columns = pa.schema([column.field for column in self.table.columns])
        return parameter_types(self.query.text, self.query.parameters, [columns])

    def stream(self, store: StoreService, check: Callable[[], None]) -> ScanStream | None:
        """Run it. None: it is for a child after all."""
        if self.planned.spec.aggregate is None:
            scan = store.scan(self.planned.spec.checked())
            return replace(
                scan, schema=self.planned.schema, batches=self.planned.renamed(scan.batches, check), marked=None
            )
        result = self.planned.run(store, check)
        if result is None:
            return None
        return ScanStream(result.schema, result.snapshot, iter(result))


def alone(store: StoreService, text: str, parameters: pa.Table | None = None, is_run: bool = False) -> Alone | None:
    """Return a statement of Flight SQL that the store answers alone; None: it is for a child, which also says what is
    wrong with it. ``is_run``: the parameters are given, or there are none."""
    if len(text) > _TEXT_MAX or (parameters is not None and parameters.num_rows != 1):
        return None
    try:
        query = statement(text)
        if query.kind is not Kind.QUERY or query.one_table is None:
            return None
        given = None if parameters is None else [column[0] for column in parameters.columns]
        values = query.bound(given) if is_run or given is not None else None
        table = store.describe_table(query.one_table.table)
        planned = query.one_table.planned(table, values, None)
    except StoreError:
        return None
    return None if planned is None else Alone(query, table, planned)
