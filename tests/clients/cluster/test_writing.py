"""Writes over several servers keep the order of the batches, whoever learns first that tablets have moved."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from nyala.clients.cluster.writing import PlacedWrite
from nyala.schemas.errors import WrongServerError
from nyala.schemas.rows.write import WriteCommand, WriteResult


class Moving:
    """A table with one tablet, which moves from the server a to b: both servers, and what their client knows."""

    def __init__(self) -> None:
        self.at = "a"
        self.may_refuse = threading.Event()
        self.written: list[int] = []

    # What the client knows

    def of(self, _: str) -> Any:
        return self._At(self.at)

    def forget(self, _: str) -> None:
        self.at = "b"

    class _At:
        def __init__(self, name: str) -> None:
            self.name = name

        def by_server(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
            return {self.name: np.arange(rows.num_rows)}

    # The servers

    def store(self, name: str) -> Any:
        return self._a if name == "a" else self._b

    @property
    def _a(self) -> Any:
        return _Store(self._refuse)

    @property
    def _b(self) -> Any:
        return _Store(self.written.extend)

    def _refuse(self, _: list[int]) -> None:
        assert self.may_refuse.wait(30)
        raise WrongServerError("the tablet has moved")


class _Store:
    def __init__(self, take: Any) -> None:
        self._take = take

    def write(self, _: WriteCommand, rows: pa.RecordBatch, seq: int | None) -> WriteResult:
        self._take(rows["v"].to_pylist())
        return WriteResult(timestamp=1, rows=rows.num_rows, applied=rows.num_rows)


def test_a_map_that_another_thread_renews_changes_no_order() -> None:
    table: Any = Moving()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [1], "v": [1]})
        table.forget("t")  # as a read of another thread does, which met the move
        yield pa.record_batch({"k": [1], "v": [2]})
        table.may_refuse.set()

    write = PlacedWrite(table, table, WriteCommand(table="t"))
    assert [answer.applied for answer in write.write_all(batches())] == [1, 1]
    assert table.written == [1, 2]
