"""A batch that is laid out and filled by hand is the batch that Arrow makes of the same cells."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.vectors.batch_form import BatchForm

WIDTHS = {
    pa.int8(): 1,
    pa.int16(): 2,
    pa.int32(): 4,
    pa.int64(): 8,
    pa.float32(): 4,
    pa.float64(): 8,
    pa.date32(): 4,
    pa.timestamp("us"): 8,
    pa.decimal128(38, 3): 16,
    pa.string(): 0,
    pa.binary(): 0,
}


_BY = {kind: pa.int32() if WIDTHS[kind] == 4 and kind != pa.float32() else kind for kind in WIDTHS}
"""Of what a column is cast: a date has no cast from 64 bits."""


def cells_of(kind: pa.DataType, count: int, has_nulls: bool, random: Random) -> pa.Array:
    if WIDTHS[kind]:
        cells: list[Any] = [random.randrange(-100, 100) for _ in range(count)]
    else:
        cells = ["x" * random.randrange(40) for _ in range(count)]
    given = [None if has_nulls and random.random() < 0.3 else cell for cell in cells]
    return pa.array(given, pa.int64() if WIDTHS[kind] else pa.string()).cast(_BY[kind]).cast(kind)


def put(message: np.ndarray, place: int, buffer: Any, size: int) -> None:
    message[place : place + size] = np.frombuffer(buffer, np.uint8, size) if size else 0


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 257])
@pytest.mark.parametrize("seed", range(4))
def test_a_message_is_the_batch_of_its_cells(count: int, seed: int) -> None:
    random = Random(seed)
    kinds = random.sample(list(WIDTHS), random.randrange(1, len(WIDTHS) + 1))
    schema = pa.schema([pa.field(f"c{i}", kind, metadata={"a": "b"}) for i, kind in enumerate(kinds)])
    arrays = [cells_of(kind, count, random.random() < 0.5, random) for kind in kinds]
    form = BatchForm(schema, [WIDTHS[kind] for kind in kinds])
    measured: list[int] = []
    for array in arrays:
        size = 0 if WIDTHS[array.type] else sum(len(cell) for cell in array.cast(pa.binary()).to_pylist() if cell)
        measured += size, array.null_count
    for _ in range(2):  # the first one changes nothing in the form
        message, places = form.laid_out(count, measured)
        filled = np.zeros(len(message), np.bool_)
        for array, (bitmap, cells, data), (size, nulls) in zip(
            arrays, places, zip(measured[::2], measured[1::2], strict=True), strict=True
        ):
            buffers, width = array.buffers(), WIDTHS[array.type]
            spans = [(cells, buffers[1], width * count if width else 4 * (count + 1))]
            spans += [] if width else [(data, buffers[2], size)]
            spans += [(bitmap, buffers[0], (count + 7) // 8)] if nulls else []
            for place, buffer, length in spans:
                assert place % 8 == 0 and not filled[place : place + length].any(), "buffers overlap"
                filled[place : place + length] = True
                put(message, place, buffer if buffer is not None else bytes(length), length)
        found = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        found.validate(full=True)
        expected = pa.RecordBatch.from_arrays(arrays, schema=schema)
        assert found.equals(expected, check_metadata=True)
        assert [column.null_count for column in found] == measured[1::2]
        first = min(min(place for place in each if place) for each in places)
        assert not message[first:][~filled[first:]].any(), "memory of others between the buffers"
