"""The result of a statement: rows to read once, or as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from .change.writing import Changed

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


_COUNT = pa.schema([pa.field("rows", pa.int64())])


class Result:
    """The rows of an SQL query, or the number of rows that a change has changed. Close it, read it to its end, or use
    it as a context manager: until then its tables are kept as of its snapshot. For one thread.

    ``to_arrow`` and what is made from it keep the rows, and may be called again. Batches come only once.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        snapshot: int | None,
        changed: int | None = None,
        command: str | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.schema = schema
        """The columns."""
        self.snapshot = snapshot
        """The timestamp that the statement read at; None if it read no table."""
        self._batches: Iterator[pa.RecordBatch] | None = batches
        self._table: pa.Table | None = None
        self.changed = changed
        """How many rows a statement has changed; None: it is a query."""
        self.command = command
        """What the statement was, such as ``UPDATE`` or ``CREATE TABLE``; None: it is a query."""
        self._close = close

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"Result({f'{self.changed:,} rows changed' if self.changed is not None else columns})"

    @property
    def rows(self) -> int:
        """The number of rows: those that a change has changed, or those of a query, which are read."""
        return self.changed if self.changed is not None else self.to_arrow().num_rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches, as they are made."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        yield from self._taken()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader that asks for batches on demand."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches by the Arrow PyCapsule protocol."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a pyarrow Table."""
        if self._table is None:
            self._table = pa.Table.from_batches(list(self._taken()), self.schema)
        return self._table

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

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return all rows as Python values by column."""
        return self.to_arrow().to_pylist()

    def close(self) -> None:
        """Release what the statement holds; rows that were not read are lost."""
        batches, self._batches = self._batches, None
        if batches is not None and (end := getattr(batches, "close", None)):
            end()
        self._close()

    def __enter__(self) -> Result:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _taken(self) -> Iterator[pa.RecordBatch]:
        batches, self._batches = self._batches, None
        if batches is None:
            raise InvalidArgumentError("the rows of this result were read or closed: run the statement again")
        try:
            yield from batches
        finally:
            self._close()


def changed(outcome: Changed) -> Result:
    """Return the result of an SQL statement that has changed rows or tables."""
    return Result(_COUNT.empty_table().schema, iter(()), outcome.timestamp, outcome.count, outcome.kind)


def _need(library: str) -> None:
    if find_spec(library) is None:
        raise InvalidArgumentError(f"to_{library} needs {library}: pip install {library}; to_arrow() does not need it")
