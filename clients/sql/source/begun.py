"""A read of a table that was begun before the query ran, and goes on while it runs.

A table is read until it turns out to be too large for memory. What was read by then is not thrown away: the parts of a
plan take it one batch after the other, and then the rest of the scan.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ....schemas.protocol.service import ScanStream
from ....schemas.rows.scan import ScanSpec
from .bounds import Tree


class BegunRead:
    """The rows of a read that was begun before its SQL query runs, each of which one part takes. Thread safe."""

    def __init__(
        self,
        where: Tree | None,
        columns: Sequence[str],
        batches: Sequence[pa.RecordBatch],
        stream: ScanStream,
        rest: Iterator[pa.RecordBatch],
    ) -> None:
        """``batches`` were read of ``stream``, whose rows stand for all that match ``where``; ``rest`` has what is
        left."""
        self.where = where
        self._columns = set(columns)
        self._batches = deque(batches)
        self._stream = stream
        self._rest = rest
        self._lock = threading.Lock()
        self._plan: object | None = None
        self._parts: set[int] = set()

    def begin(self, part: BegunPart, spec: ScanSpec) -> None:
        """Let a part take rows, as a scan would that finds no row besides.

        Raises:
            RuntimeError: it asks for other rows or columns, it is of a second plan, or takes rows a second time.
        """
        with self._lock:
            self._plan = self._plan or part.plan
            is_first = self._plan is part.plan and part.number not in self._parts
            if not (is_first and spec.where == self.where and self._columns.issuperset(spec.columns or ())):
                raise RuntimeError(
                    f"a query reads table {spec.table!r} twice, or reads other rows or columns than it planned"
                )
            self._parts.add(part.number)

    def take(self) -> pa.RecordBatch | None:
        """Return rows that no part has taken; None at the end."""
        with self._lock:
            return self._batches.popleft() if self._batches else next(self._rest, None)

    def close(self) -> None:
        """End the scan, and drop what was not taken."""
        with self._lock:
            self._batches.clear()
            self._rest = iter(())
            self._stream.close()


@dataclass(frozen=True, slots=True)
class BegunPart:
    """A part of a read that was begun before its SQL query runs, as a scan. All parts of one ``plan`` take the rows
    together."""

    read: BegunRead
    plan: object
    number: int

    def stream(self, spec: ScanSpec) -> ScanStream:
        """Return the rows that this part takes. Raises as ``BegunRead.begin``."""
        self.read.begin(self, spec)
        return ScanStream(pa.schema([]), None, self._batches(list(spec.columns or ())))

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        while (batch := self.read.take()) is not None:
            yield batch.select(columns)
