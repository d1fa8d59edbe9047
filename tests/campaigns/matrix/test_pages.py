"""Every kind of page x every kind of patch x NULL or not x every reader.

What there is to read follows from the engine: the codecs that are registered, the kinds of pages and the forms of
columns that kernels know, the stores of deltas, what a rowset can be asked for, the fields of a scan, and the calls
that return rows. One that nothing here comes to fails a test. Spark reads the same table (tests/clients/spark).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.offline_jobs.direct_scan import DirectScan
from nyala.engine.cfile import page_kind, stream
from nyala.engine.codecs import registry
from nyala.engine.codecs.bitshuffle import BitshuffleCodec
from nyala.engine.fs import FileSystem, MemoryFileSystem
from nyala.engine.kernels.reads import point_read
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.rowset import RowSet
from nyala.engine.store import Store
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.rows.scan import ScanSpec
from tests.campaigns.matrix import reached as there_is
from tests.campaigns.matrix.page_table import STATES, STATES_OF_DELTAS, PageTable
from tests.campaigns.matrix.pages import PageColumn, page_columns, planned
from tests.campaigns.matrix.reached import recorded
from tests.campaigns.matrix.readers import READERS, READERS_OF_A_BUCKET, Reader, Reading, get, get_many, readers_in
from tests.clients.test_public_api import FOR_CHECKERS_ONLY, OFFERED, functions
from tests.doubles.machines import Machine
from tests.engine.replica.replicas import SMALL, Follower, Holder

Faults = list[tuple[str, str, Exception]]
"""State, reader, and what it did not find."""


def read_in_every_state(
    table: PageTable,
    states: Sequence[str],
    readers: Sequence[Reader],
    where: FileSystem | Machine,
    follower: Follower | None,
    folder: Path,
) -> Faults:
    faults: Faults = []
    for turn, state in enumerate(states):
        table.step(state)
        reading = Reading(table.database, table.table, table.rows, table.past[:-1], turn, folder, where, follower)
        for reader in readers_in(turn, readers):
            try:
                reader(reading)
            except Exception as error:
                faults.append((state, reader.__name__, error))
    return faults


def read_on_a_disk(columns: Sequence[PageColumn], folder: Path) -> Faults:
    """Even pages. Strings that are read twice are kept as plain ones."""
    disk, stores = MemoryFileSystem(), list[Store]()

    def opened() -> Database:
        for store in stores[-1:]:
            store.close()
        stores.append(Store.open(disk, StoreOptions(maintenance="off")))
        return Database(stores[-1])

    table = PageTable(opened(), columns, opened)
    with planned(table.by_id):
        faults = read_in_every_state(table, STATES, READERS, disk, None, folder)
    stores[-1].close()
    return faults


def read_without_a_cache(columns: Sequence[PageColumn], folder: Path, row_column: bool) -> Faults:
    """Pages of which hardly any is kept, and none is too short to be read for one row alone; or rows as wholes."""
    disk, options = MemoryFileSystem(), StoreOptions(maintenance="off", page_cache_bytes=3_000)
    with Store.open(disk, options) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "WORTH_PARTS", 0)
        table = PageTable(Database(store), columns, row_column=row_column)
        with planned(table.by_id):
            return read_in_every_state(table, STATES_OF_DELTAS, [get, get_many], disk, None, folder)


def read_in_a_bucket(columns: Sequence[PageColumn], folder: Path) -> Faults:
    """Uneven pages, of which none is kept, so that strings stay as they are stored."""
    holder = Holder.of(Machine(), SMALL.model_copy(update={"page_cache_bytes": 1}))
    table, follower = PageTable(holder.database, columns), Follower(holder.machine)
    with planned(table.by_id, uneven=True):
        faults = read_in_every_state(table, STATES_OF_DELTAS, READERS_OF_A_BUCKET, holder.machine, follower, folder)
    follower.replica.close()
    holder.store.close()
    return faults


NOT_OF_A_SCAN = {
    "table",
    "planned",  # tickets of Flight
    "lease",
    "pin",
    "now",  # the moment of NOW(), a literal
    "here",  # several servers
    "tablets_here",
    "max_staleness",  # a server that stands by
    "split_bytes",  # plans, whose parts are read by ``export``
    "all_parts",
}
"""Fields of scans that say nothing about which cells are read, and how."""


def test_every_reader_finds_every_page_under_every_patch(tmp_path: Path) -> None:
    columns = page_columns()
    with recorded() as reached:
        faults = read_on_a_disk(columns, tmp_path)
        faults += read_without_a_cache(columns, tmp_path, row_column=False)
        faults += read_without_a_cache(columns, tmp_path, row_column=True)
        faults += read_in_a_bucket([column for column in columns if column.physical is PhysicalType.BYTES], tmp_path)
    assert not faults
    assert not there_is.lacking(reached)
    assert there_is.block_forms() == reached.block_forms
    assert there_is.column_forms() == reached.column_forms
    assert there_is.methods() <= reached.methods
    assert set(ScanSpec.model_fields) - NOT_OF_A_SCAN <= reached.spec_fields


class _Zigzag(BitshuffleCodec):
    code, name = 99, "zigzag"


def test_a_new_encoding_cannot_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CODECS", (*registry._CODECS, _Zigzag()))
    assert any("zigzag" in column.plan for column in page_columns())
    with pytest.raises(KeyError, match="zigzag"):  # kernels have to know it
        there_is.cases()
    monkeypatch.setitem(page_kind._KINDS, "zigzag", point_read.SHUFFLED)
    assert there_is.lacking(there_is.Reached())


def test_a_new_way_to_read_cannot_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowSet, "peek", lambda self, row: None, raising=False)
    assert "peek" in there_is.methods()


READ_BY = {
    "Table.scan": "scan",
    "Table.head": "scan_in_key_order",
    "Table.changes": "changes",
    "Table.get": "get",
    "Table.get_many": "get_many",
    "Table.direct_scan": "direct_read",
    "Scan.to_arrow": "scan",
    "Scan.to_reader": "scan",
    "Scan.aggregate": "aggregate",
    "Database.pinned_scan": "direct_read",
    "Database.sql": "sql",
    "Database.commits": "",
}
"""The public calls that return rows, and the reader of the same cells; "" for one that returns no cells of a table."""


def test_every_call_that_returns_rows_has_a_reader() -> None:
    rows = {pa.Table, pa.RecordBatchReader, nyala.Scan, nyala.Result, DirectScan, dict[str, Any] | None}
    calls = {"Table", "Scan", "Database"}
    hints = FOR_CHECKERS_ONLY | OFFERED
    found = {
        name
        for name, function in functions(OFFERED)
        if name.partition(".")[0] in calls and get_type_hints(function, localns=hints).get("return") in rows
    }
    assert found == set(READ_BY)
    assert set(READ_BY.values()) - {""} <= {reader.__name__ for reader in READERS}
