"""Scan: rows to read, in any form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.aggregate import measures_json
from ...schemas.rows.scan import ScanSpec
from ...schemas.table.names import Names, listed
from .explanation import Explanation, analyzed

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True, slots=True)
class Scan:
    """The scan that a user builds by ``Table.scan``: what to read. Nothing is read until the scan is consumed. Each
    consumption reads again: without ``as_of``, the state at that time.

    Consuming raises ``InvalidArgumentError`` if columns, filters or times do not fit the table, and
    ``SnapshotTooOldError`` if the history of that time is no longer kept.
    """

    _store: StoreService
    _spec: ScanSpec

    def __repr__(self) -> str:
        return repr(self._spec).replace("ScanSpec(table=", "Scan(", 1)

    @property
    def snapshot(self) -> int | None:
        """The timestamp that the scan reads at; for changes, the end of their range.

        None for a scan without ``as_of``: each consumption then reads at its own "now".
        """
        return None if self._spec.moment is None else parse_moment(self._spec.moment)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches."""
        stream = self._store.scan(self._spec)
        # A generator: closing it, or dropping it, releases what the scan pins.
        yield from stream.batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader that fetches batches on demand."""
        return self._store.scan(self._spec).to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches by the Arrow PyCapsule protocol: for DuckDB, polars and anything else that speaks it."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a pyarrow Table."""
        stream = self._store.scan(self._spec)
        return pa.Table.from_batches(list(stream.batches), schema=stream.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame; ``options`` go to ``pyarrow.Table.to_pandas``."""
        _need("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars DataFrame."""
        _need("polars")
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def aggregate(self, measures: Mapping[str, tuple[str, str]], group_by: Names = ()) -> pa.Table:
        """Return measures of the rows, computed in the store: one row, or one for each group.

        ``measures`` are ``{name: (column, function)}``, as in ``{"total": ("price", "sum"), "n": ("*", "count")}``;
        functions are count, sum, min, max and avg. The result has the columns of ``group_by``, then the measures, with
        rows in no particular order: see docs/aggregates.md. The scan's ``columns`` are ignored.

        Raises:
            InvalidArgumentError: a measure is invalid, there are too many groups, or the scan has a limit or reads
                changes.
        """
        asked = {"aggregate": measures_json(measures), "group_by": listed(group_by)}
        changed = {**asked, "columns": None, "ordered": False, "order_by": None}
        stream = self._store.scan(self._spec.model_copy(update=changed).checked())
        return pa.Table.from_batches(list(stream.batches), schema=stream.schema)

    def count(self) -> int:
        """Return the number of rows. The store counts them and reads only the columns of the filter."""
        if self._spec.limit is None and not self._spec.offset and self._spec.changes is None:
            return self.aggregate({"rows": ("*", "count")})["rows"][0].as_py()
        offset, limit = self._spec.offset, self._spec.limit
        last = None if limit is None else offset + limit
        without = {"columns": [], "ordered": False, "order_by": None, "offset": 0, "limit": last}
        rows = sum(batch.num_rows for batch in self._store.scan(self._spec.model_copy(update=without)).batches)
        return max(rows - offset, 0)

    def explain(self, analyze: bool = False) -> Explanation:
        """Return how the scan would run: its snapshot and parts, what it skips and why.

        The result prints as a page; it is a dict, and ``json()`` returns it as JSON. With ``analyze``, the scan runs to
        its end, and the result includes its rows, bytes and seconds.
        """
        plan = self._store.plan(self._spec).model_dump(mode="json")
        parts = plan.pop("explain") | plan
        if analyze:
            parts["analyze"] = analyzed(self)
        return Explanation(self._spec, parts)


def _need(library: str) -> None:
    """Raise InvalidArgumentError if ``library`` is not installed."""
    if find_spec(library) is None:
        raise InvalidArgumentError(f"to_{library} needs {library}: pip install {library}; to_arrow() does not need it")


def check_ordered(ordered: object) -> None:
    """Reject any argument ``ordered`` of a user's scan but True and False, such as the name of a column."""
    if not isinstance(ordered, bool):
        raise InvalidArgumentError(
            f"ordered must be True (primary-key order) or False, not {ordered!r}; order_by={ordered!r} "
            "sorts by any columns"
        )


def column_names(columns: Names | None) -> list[str] | None:
    """Return the columns that a user names for a scan as a list; None for all."""
    return None if columns is None else listed(columns)
