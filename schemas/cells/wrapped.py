"""Arrow types that wrap another type: extensions, dictionaries, run-end encoding."""

from __future__ import annotations

import pyarrow as pa

from .. import compute as pc


def bare_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the cells of an array of ``kind``, without wrapping."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def unwrapped(array: pa.Array) -> pa.Array:
    """Return cells without what wraps their type: the storage of an extension array, or a run-end encoded array as a
    dictionary of its runs with one code for each row; any other array unchanged."""
    if isinstance(array, pa.ExtensionArray):
        return unwrapped(array.storage)
    if not isinstance(array, pa.RunEndEncodedArray):
        return array

    numbers = pa.RunEndEncodedArray.from_arrays(array.run_ends, pa.array(range(len(array.values)), pa.int32()))
    codes = pc.run_end_decode(numbers.slice(array.offset, len(array)))
    runs = unwrapped(array.values)
    return runs.take(codes) if isinstance(runs, pa.DictionaryArray) else pa.DictionaryArray.from_arrays(codes, runs)
