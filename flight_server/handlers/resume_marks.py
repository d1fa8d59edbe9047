"""The batches of a resumable scan: split into messages like any scan's, some of which say where to resume."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ...schemas.protocol.command import ScanMark
from ...schemas.protocol.service import Marked
from ..settings.config import ServerConfig
from .message_split import cut


def cut_marked(
    marked: Iterator[Marked], snapshot: int, config: ServerConfig
) -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]:
    """Yield the messages of a DoGet that a client can resume: batches, and batches with a ``ScanMark`` for clients that
    have received everything up to them.

    Marks after the first are at least ``sent_bytes_min`` apart, so that small batches are still combined.
    """
    sections = _Sections(marked, config.sent_bytes_min)
    while not sections.is_over:
        waiting: pa.RecordBatch | None = None
        for piece in cut(sections.next(), config):
            if waiting is not None:
                yield waiting
            waiting = piece
        if waiting is not None and sections.below is not None:
            yield waiting, ScanMark(below=sections.below.hex(), snapshot=snapshot).model_dump_json().encode()
        elif waiting is not None:
            yield waiting


class _Sections:
    """The batches from one mark to the next."""

    def __init__(self, marked: Iterator[Marked], bytes_min: int) -> None:
        self._marked = marked
        self._bytes_min = bytes_min
        self._is_first = True
        self.below: bytes | None = None
        """The mark at the end of the last section."""
        self.is_over = False

    def next(self) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch, below in self._marked:
            if batch is not None and batch.num_rows:
                size += max(batch.nbytes, 1)  # without columns, rows have no bytes
                yield batch
            if below is not None and size and (self._is_first or size >= self._bytes_min):
                self._is_first, self.below = False, below
                return
        self.below, self.is_over = None, True
