"""A write whose reads fail is refused before it is logged, and the store goes on."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import UnreadableFileError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.faulty import CONTENT, FaultRule, FaultyFileSystem

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("at", pa.int64(), False)])


ROW_TO_COME = {"id": 7, "at": 9}


def write(store: Store, table: str, op: Operation, *rows: dict[str, Any]) -> None:
    store.write(WriteCommand(table=table, op=op), pa.RecordBatch.from_pylist(list(rows), SCHEMA))


def test_a_delete_of_a_row_that_is_to_come_reads_no_file_after_it_is_logged() -> None:
    """It stores the place of the row in the order, and looked for all keys again then. An error stopped the store."""
    for nth in range(1, 100):
        disk = FaultyFileSystem(MemoryFileSystem())
        store = Store.open(
            disk, StoreOptions(maintenance="off", scan_threads=1, page_cache_bytes=1, direct_load_bytes=1)
        )
        for name in ("t", "other"):
            store.create_table(TableDefinition.from_arrow(name, SCHEMA, ["id"], options={"order_by": "at"}))
        write(store, "t", Operation.UPSERT, *({"id": number, "at": 5} for number in range(4)))
        disk.rules.append(FaultRule(CONTENT, nth=nth))
        disk._matched.append(0)
        with suppress(UnreadableFileError):
            write(store, "t", Operation.DELETE_IGNORE, {"id": 0, "at": 9}, ROW_TO_COME)
        disk.rules.clear()
        write(store, "other", Operation.UPSERT, ROW_TO_COME)
        store.close()
        if not disk.injected:
            return
    raise AssertionError("the delete reads without end")
