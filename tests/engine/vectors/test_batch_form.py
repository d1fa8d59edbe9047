"""A batch that is laid out and filled by hand is the batch that Arrow makes of the same cells."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.kernels.reads.point_batch import measure_columns, write_batch, write_few
from nyala.engine.kernels.reads.point_read import CELL_BYTES
from nyala.engine.vectors.batch_form import BatchForm
from nyala.engine.vectors.memory.memory import SLACK_BYTES, address_of

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


def table_of(arrays: list[pa.Array], rows: int, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return a table of cells that has the arrays' in its ``chosen`` rows, its flags of NULLs, and the strings."""
    width = len(arrays) + 1
    table = np.full((rows, width, CELL_BYTES), 0xAA, np.uint8)
    nulls = np.ones((rows, width), np.uint8)
    texts: list[np.ndarray] = []
    for column, array in enumerate(arrays):
        size = WIDTHS[array.type]
        cells = (
            [array.buffers()[1][i * size : (i + 1) * size].to_pybytes() for i in range(len(array))]
            if size
            else array.cast(pa.binary()).to_pylist()
        )
        for row, cell, is_null in zip(chosen, cells, array.is_null().to_pylist(), strict=True):
            cell, nulls[row, column] = b"" if is_null else cell, is_null
            if not size:
                texts.append(np.frombuffer(cell + b"?", np.uint8))
                cell = np.array([address_of(texts[-1]), len(cell)], np.int64).tobytes()
            table[row, column] = np.frombuffer(cell.ljust(CELL_BYTES, b"\0"), np.uint8)
    return table, nulls, texts


@pytest.mark.parametrize("write", [write_few, write_batch])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 257])
@pytest.mark.parametrize("seed", range(4))
def test_a_message_is_the_batch_of_its_cells(write: Any, count: int, seed: int) -> None:
    random = Random(seed)
    kinds = random.sample(list(WIDTHS), random.randrange(1, len(WIDTHS) + 1))
    schema = pa.schema([pa.field(f"c{i}", kind, metadata={"a": "b"}) for i, kind in enumerate(kinds)])
    arrays = [cells_of(kind, count, random.random() < 0.5, random) for kind in kinds]
    form = BatchForm(schema, [WIDTHS[kind] for kind in kinds])
    chosen = np.array(sorted(random.sample(range(2 * count), count)), np.int64)
    table, nulls, texts = table_of(arrays, 2 * count, chosen)
    sizes = np.zeros(2 * len(kinds) + 2, np.int64)
    cells = address_of(table), address_of(nulls), len(kinds) + 1
    measure_columns(*cells, address_of(chosen), count, address_of(sizes))
    lengths = [
        0 if WIDTHS[each.type] else sum(len(cell) for cell in each.cast(pa.binary()).to_pylist() if cell)
        for each in arrays
    ]
    assert [size for size, kind in zip(sizes[::2], kinds, strict=False) if not WIDTHS[kind]] == [
        size for size, kind in zip(lengths, kinds, strict=True) if not WIDTHS[kind]
    ]
    assert sizes[1:-2:2].tolist() == [array.null_count for array in arrays]
    needed = sum(lengths) + sum((WIDTHS[kind] or 4) * count for kind in kinds)
    for _ in range(2):  # the first one changes nothing in the form
        message = form.message(count, needed)
        where = address_of(chosen), count, address_of(sizes), form.address, address_of(message)
        body = write(*cells, *where)
        assert form.head_bytes + body <= len(message) - SLACK_BYTES and body % 64 == 0
        assert not any(message[form.head_bytes + body :]), "written past the body"
        found = pa.ipc.read_record_batch(pa.py_buffer(message[: form.head_bytes + body].data), schema)
        found.validate(full=True)
        expected = pa.RecordBatch.from_arrays(arrays, schema=schema)
        assert found.equals(expected, check_metadata=True)
        assert [column.null_count for column in found] == [array.null_count for array in arrays]
        used = sum(len(buffer) for column in found for buffer in column.buffers() if buffer is not None)
        assert body < used + 3 * 64 * len(kinds), "buffers lie side by side"
    del texts
