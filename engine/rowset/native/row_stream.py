"""RowStream: the rows of a base file as wholes, as the kernel that reads single rows takes them.

A table with the option ``row_column`` has each row once more, in row encoding (`codecs.row`), so that a read of a row
that is not in memory takes one page and not one of each column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...cfile.page import Page
from ...cfile.stream import StreamReader
from ...codecs.codec import CorruptPageError, require
from ...kernels.cells import row as row_kernels
from ...kernels.reads import point_read as kernels
from ...vectors.memory.memory import address_of
from ...vectors.physical import PhysicalType
from .row_columns import RowColumns

_NULL = (kernels.NULLS, *([0] * (kernels.PLACE_FIELDS - 1)))


class RowStream:
    """Reads single rows of the stream of whole rows. Thread safe."""

    def __init__(self, stream: StreamReader, columns: RowColumns, streams: Sequence[StreamReader | None]) -> None:
        """``streams`` have the same cells of ``columns``; None for one that the file does not have."""
        self._stream = stream
        present = sorted(
            (column_id, number, of_column.physical)
            for number, (column_id, of_column) in enumerate(zip(columns.ids, streams, strict=False))
            if of_column is not None
        )
        self._columns = [(number, physical) for _, number, physical in present]
        self._ids = np.array([column_id for column_id, _, _ in present], np.int64)

    def read(self, row: int, fields: np.ndarray) -> tuple[Page, np.ndarray] | None:
        """Read a row, and write where its cells are to the ``fields`` of the columns; return what must live as long as
        these are used. None for a long row, which is not there as a whole.

        Raises:
            CorruptionError, UnreadableFileError: the page cannot be read.
            CorruptPageError: the row contradicts itself, or the types of its columns.
        """
        stream, count = self._stream, len(self._columns)
        number = stream.page_of(row)
        page = stream.page_of_row(number, row)
        require(page.codec.name == "plain" and page.bitmap is None and not page.is_all_null, "no whole rows")
        start = address_of(page.stored)
        ends, data = start + 4 * (row - stream.first_row(number)), start + 4 * (page.row_count + 1)
        begin, end = np.frombuffer(page.stored, np.int32, 2, ends - start).tolist()
        if begin == end:
            return None
        if row_kernels.check_rows(ends, data, 1) < 0:
            raise CorruptPageError(f"the lengths in row {row} contradict each other")
        starts, sizes, texts = (
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.zeros((len(fields), 2), np.int32),
        )
        row_kernels.find_datums(ends, data, 1, address_of(self._ids), count, address_of(starts), address_of(sizes))
        offsets = address_of(texts)
        for (column, physical), datum, size in zip(self._columns, starts.tolist(), sizes.tolist(), strict=True):
            if size < 0:
                fields[column] = _NULL
            elif physical is PhysicalType.BYTES:
                length = size - row_kernels.LENGTH_BYTES
                if length < 0:
                    raise CorruptPageError(f"row {row} has a string without its length")
                texts[column, 1] = length
                place = offsets + 8 * column
                fields[column] = kernels.TEXTS, 0, 0, 1, 0, row, place, datum + row_kernels.LENGTH_BYTES, 0, 0
            else:
                if size != physical.width:
                    raise CorruptPageError(f"row {row} has a cell of the wrong type")
                fields[column] = kernels.FIXED, size, datum, 1, 0, row, 0, 0, 0, 0
        return page, texts
