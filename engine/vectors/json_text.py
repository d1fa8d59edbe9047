"""JSON text of many cells: its check, and the values at a path, by kernels. `schemas.cells.json_text` defines both."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas.cells.json_text import Steps, not_json_message, read_by
from ...schemas.errors import InvalidArgumentError
from ..kernels.cells import json_text as kernels
from .arrow_buffers import bytes_to_arrow, from_strings, validity_of
from .gather import check_data_bytes
from .memory.memory import address_of, allocate
from .vector import BytesVector


def not_json(cells: BytesVector) -> np.ndarray | None:
    """Return which cells (bool) are not JSON, and not NULL; None if there are none."""
    flags = np.empty(len(cells), np.bool_)
    work = np.empty(kernels.WORK_BYTES, np.uint8)
    where = address_of(cells.data), address_of(cells.offsets), len(cells)
    if not kernels.check_texts(*where, address_of(work), address_of(flags)):
        return None
    wrong = ~flags if cells.valid is None else ~flags & cells.valid
    return wrong if wrong.any() else None


def json_values(texts: pa.Array, steps: Steps, is_text: bool) -> pa.Array:
    """Return the values at a path in each cell of a column of JSON texts: their JSON, or with ``is_text`` the
    characters of strings, and NULL for a null.

    Raises:
        InvalidArgumentError: a text is not JSON.
    """
    cells = from_strings(texts, validity_of(texts))
    count, keys = len(cells), [step.encode() if isinstance(step, str) else b"" for step in steps]
    names = np.frombuffer(b"".join(keys) or b"\0", np.uint8)
    places = address_of(names) + np.cumsum([0, *map(len, keys)])
    table = np.array(
        [
            (place, len(key)) if isinstance(step, str) else (step, -1)
            for step, key, place in zip(steps, keys, places, strict=False)
        ],
        np.int64,
    )
    starts, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
    work = np.empty(kernels.WORK_BYTES, np.uint8)
    data, valid = address_of(cells.data), 0 if cells.valid is None else address_of(cells.valid)
    where = data, address_of(cells.offsets), count, valid
    checked = kernels.find_values(
        *where, address_of(table), len(steps), address_of(work), address_of(starts), address_of(lengths)
    )
    if checked < count:
        raise InvalidArgumentError(not_json_message(texts[checked].as_py()))
    size = check_data_bytes(int(np.maximum(lengths, 0).sum()))
    ends, target = allocate(count + 1, np.int32), allocate(size, np.uint8)
    found = data, address_of(starts), address_of(lengths), count
    kernels.write_texts(*found, is_text, address_of(ends), address_of(target))
    return bytes_to_arrow(BytesVector(ends, target[: ends[-1]], lengths >= 0), pa.string())


read_by(json_values)
