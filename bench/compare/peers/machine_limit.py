"""What the machine needs for the bytes alone: the limit that no store can beat."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..subject import NotOffered
from ..workload import Aggregate, Filter, Workload


class MachineLimit:
    """Writes Arrow's bytes to a file and syncs it; copies them in memory, into memory that it has touched before.

    A store may write less than that, since it compresses.
    """

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder = folder
        self.rows = workload.table.slice(0, 0)
        self.target = np.zeros(0, np.uint8)
        self.changes = 0

    def load(self, table: pa.Table) -> None:
        self._write("rows", table)
        self.rows = table
        self.target = np.full(max((len(piece) for piece in _pieces(table)), default=0), 1, np.uint8)

    def settle(self) -> None:
        raise NotOffered

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        if where:
            raise NotOffered
        rows = self.rows.select(columns) if columns else self.rows
        for piece in _pieces(rows):
            self.target[: len(piece)] = piece
        return rows

    def aggregate(self, asked: Aggregate) -> pa.Table:
        raise NotOffered

    def upsert(self, rows: pa.Table) -> None:
        self.changes += 1
        self._write(f"change-{self.changes}", rows)

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        raise NotOffered

    def close(self) -> None:
        """Nothing is open."""

    def _write(self, name: str, rows: pa.Table) -> None:
        with open(self.folder / name, "wb") as file:
            for piece in _pieces(rows):
                file.write(piece.data)
            file.flush()
            os.fdatasync(file.fileno())


def _pieces(rows: pa.Table) -> list[np.ndarray]:
    """Return the memory of all columns."""
    buffers = [
        buffer for column in rows.columns for chunk in column.chunks for buffer in chunk.buffers() if buffer is not None
    ]
    return [np.frombuffer(buffer, np.uint8) for buffer in buffers]
