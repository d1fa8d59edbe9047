"""A table of `page_columns`, taken through the states in which deltas can be, and what it should hold.

Its rows are in two rowsets, whose keys alternate as far as the smaller one goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.codecs.codec import BLOCK_ROWS
from nyala.engine.compaction import flush_deltas
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.tablet.tablet import Tablet
from nyala.schemas.table.column import ColumnOptions
from tests.campaigns.matrix.cells import STYLES
from tests.campaigns.matrix.pages import PageColumn

PAGES = 5
"""Of the first rowset: as many as a plan has encodings, and one more for NULLs; then a part of one."""
EVEN_IDS = np.arange(0, 2 * (PAGES * BLOCK_ROWS + 150), 2)
ODD_IDS = EVEN_IDS[: BLOCK_ROWS + 50] + 1
WIDER = {pa.int8(): "int16", pa.int16(): "int32", pa.int32(): "int64", pa.float32(): "double"}
STATES = (
    "in memory",
    "flushed",
    "patched in memory",
    "patched in two stores in memory",
    "patched in a file",
    "patched in files and in memory",
    "read row by row",
    "widened",
    "compacted",
    "patched again",
    "emptied",
    "merged",
    "restarted",
)
STATES_OF_DELTAS = (*STATES[:6], "compacted", "patched again", "emptied")
"""Those in which deltas are in every store, without what changes the table or its pages otherwise."""


class PageTable:
    """``rows`` are those of now in the order of ids, ``past`` those of each moment kept."""

    def __init__(
        self,
        database: Database,
        columns: Sequence[PageColumn],
        reopen: Callable[[], Database] | None = None,
        row_column: bool = False,
    ) -> None:
        self.database = database
        self.columns = {column.name: column for column in columns}
        self._reopen = reopen
        schema = pa.schema([pa.field("id", pa.int64(), False), *(column.field for column in columns)])
        options = {column.name: ColumnOptions(block_rows=BLOCK_ROWS) for column in columns}
        self.table: Table = database.create_table(
            "pages", schema, ["id"], column_options=options, row_column=row_column
        )
        self.by_id = {each["id"]: self.columns[each["name"]] for each in self.table.describe()["columns"][1:]}
        self.rows = schema.empty_table()
        self.past: list[tuple[int, pa.Table]] = []
        self._turn = 0

    def step(self, state: str) -> None:
        """Take the table from the state before to this one."""
        getattr(self, "_" + state.replace(" ", "_"))()
        self._keep()

    def _keep(self) -> None:
        self.past.append((self.database.now(), self.rows))

    @property
    def tablet(self) -> Tablet:
        store: Any = self.database._store
        (tablet,) = store._catalog.table("pages").tablets
        return tablet

    @property
    def rowsets(self) -> Sequence[DiskRowSet]:
        return self.tablet.version.on_disk

    # --- the states ---

    def _in_memory(self) -> None:
        """Also changes that are history once the rows are flushed: of some pages only, and none in its style."""
        self._insert(EVEN_IDS)
        self._keep()
        self._turn = len(STYLES)
        of_page, names = EVEN_IDS // 2 // BLOCK_ROWS, list(self.columns)
        nullable = [name for name in names if self.columns[name].nullable]
        self._update(EVEN_IDS[of_page == 0][::11], names, lambda column: column.other_cells)
        self._update(EVEN_IDS[of_page == 2], names, lambda column: column.new_cells)
        self._update(EVEN_IDS[of_page == 3], nullable, lambda column: column.nulls)

    def _flushed(self) -> None:
        self.table.maintain("flush")
        self._insert(ODD_IDS)
        self.table.maintain("flush")

    def _patched_in_memory(self) -> None:
        self._patch()
        self._delete()

    def _patched_in_two_stores_in_memory(self) -> None:
        flush_deltas._freeze(self.tablet)
        self._patch()

    def _patched_in_a_file(self) -> None:
        for _ in range(2):
            self.table.maintain("flush_deltas")

    def _patched_in_files_and_in_memory(self) -> None:
        for _ in range(2):
            self._patch()
            self.table.maintain("flush_deltas")
        self._patch()

    def _read_row_by_row(self) -> None:
        """Pages that are read so are kept decompressed, strings as plain ones."""
        for rowset in self.rowsets:
            for number in self.by_id:
                stream = rowset.base_stream(number)
                for page in range(stream.page_count):
                    stream.loosen(page, stream.page(page))

    def _widened(self) -> None:
        alteration = self.table.alter()
        for name, column in list(self.columns.items()):
            if name.endswith("_null") and (wider := WIDER.get(column.field.type)):
                alteration.widen_column(name, wider)
        alteration.add_column("added", "string", block_rows=BLOCK_ROWS)
        alteration.add_column("preset", "int32", False, read_default=7)
        alteration.apply()
        height = self.rows.num_rows
        added = [pa.nulls(height, pa.string()), pa.array(np.full(height, 7, np.int32))]
        columns = [
            cells.cast(self.table.schema.field(name).type)
            for name, cells in zip(self.rows.schema.names, self.rows.columns, strict=True)
        ]
        self.rows = pa.table([*columns, *added], self.table.schema)
        self.past = [(moment, self._as_now(rows)) for moment, rows in self.past]
        self._patch()

    def _compacted(self) -> None:
        for op in ("flush_deltas", "minor_compact", "major_compact"):
            self.table.maintain(op)

    def _patched_again(self) -> None:
        self._patch()
        self._delete()

    def _emptied(self) -> None:
        """Pages of NULLs, of rows that were not before."""
        ids = self.rows["id"].to_numpy()
        ids = ids[ids // 2 // BLOCK_ROWS == 0]
        names = [name for name, column in self.columns.items() if column.nullable]
        self._update(ids, names, lambda column: column.new_cells)
        self._keep()
        self._update(ids, names, lambda column: column.nulls)
        for op in ("flush_deltas", "major_compact"):
            self.table.maintain(op)

    def _merged(self) -> None:
        self.table.maintain("compact")

    def _restarted(self) -> None:
        self._patch()
        if self._reopen:
            self.database = self._reopen()
            self.table = self.database.table("pages")

    # --- what is written ---

    def _insert(self, ids: np.ndarray) -> None:
        pages, numbers = ids // 2 // BLOCK_ROWS, ids
        cells = [column.first_cells(pages, numbers) for column in self.columns.values()]
        batch = pa.table([pa.array(ids), *cells], self.rows.schema)
        assert self.table.insert(batch).applied == len(ids)
        self.rows = pa.concat_tables([self.rows, batch]).sort_by("id").combine_chunks()

    def _patch(self) -> None:
        """Change some rows everywhere; all rows of a page; all rows of another to NULL, in half of the columns; and two
        rows one by one."""
        turn = self._turn = self._turn + 1
        ids = self.rows["id"].to_numpy()
        names = list(self.columns)
        self._update(ids[ids % 11 == turn % 11], names, lambda column: column.other_cells)
        of_page = ids // 2 // BLOCK_ROWS
        self._update(ids[of_page == (turn + 3) % PAGES], names, lambda column: column.new_cells)
        nullable = [name for name in names[(turn + 1) % 2 :: 2] if self.columns[name].nullable]
        self._update(ids[of_page == (turn + 2) % PAGES], nullable, lambda column: column.nulls)
        self._update(ids[[turn * 7, -turn]], names, lambda column: column.new_cells, one_by_one=True)

    def _update(self, ids: np.ndarray, names: Sequence[str], how: Callable[..., Any], one_by_one: bool = False) -> None:
        pages = ids // 2 // BLOCK_ROWS
        cells = [how(self.columns[name])(pages, ids, self._turn) for name in names]
        fields = [self.rows.schema.field(name) for name in ("id", *names)]
        cells = [each.cast(field.type) for each, field in zip(cells, fields[1:], strict=True)]
        batch = pa.table([pa.array(ids), *cells], pa.schema(fields))
        for part in batch.to_pylist() if one_by_one else [batch]:
            self.table.update([part] if one_by_one else part)
        places = np.searchsorted(self.rows["id"].to_numpy(), ids)
        source = np.arange(self.rows.num_rows)
        source[places] = self.rows.num_rows + np.arange(len(ids))
        for name in names:
            both = pa.concat_arrays([self.rows[name].combine_chunks(), batch[name].combine_chunks()])
            at = self.rows.schema.get_field_index(name)
            self.rows = self.rows.set_column(at, self.rows.schema.field(name), both.take(pa.array(source)))

    def _delete(self) -> None:
        ids = self.rows["id"].to_numpy()[self._turn :: 97]
        self.table.delete({"id": ids})
        self.rows = self.rows.filter(pc.invert(pc.is_in(self.rows["id"], pa.array(ids)))).combine_chunks()

    def _as_now(self, rows: pa.Table) -> pa.Table:
        """Return rows of the past as the table shows them since it was altered."""
        height = rows.num_rows
        rows = rows.append_column("added", pa.nulls(height, pa.string()))
        return rows.append_column("preset", pa.array(np.full(height, 7, np.int32))).cast(self.table.schema)
