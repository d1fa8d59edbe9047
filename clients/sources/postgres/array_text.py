"""The text of PostgreSQL's arrays, such as ``{1,NULL,"a b"}``, as lists of texts."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from ....schemas import compute as pc

_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)')
_ESCAPED = re.compile(r"\\(.)")


def lists_of_text(text: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Read the text of PostgreSQL's arrays: return the texts of all items, the offsets of the lists, and which lists
    are NULL.

    Raises:
        ValueError: an array has several dimensions, or bounds of its own.
    """
    nulls = text.is_null()
    whole = text.fill_null("{}")
    if not pc.all(
        pc.match_substring_regex(whole, r"^\{([^{]|$)"), min_count=0
    ).as_py():  # bounds come before the first brace
        raise ValueError("an array with several dimensions, or with its own lower bound, is not a list")
    if pc.any(pc.match_substring_regex(whole, r'["\\]')).as_py():
        items, offsets = _quoted(whole)
        return items, offsets, nulls
    inner = pc.utf8_slice_codeunits(whole, 1, -1)
    is_empty = pc.equal(inner, "").to_numpy(zero_copy_only=False)
    parts = pc.split_pattern(inner, ",")
    lengths = np.where(is_empty, 0, pc.list_value_length(parts).to_numpy())
    items = parts.flatten()
    items = items.filter(pc.not_equal(items, ""))  # an empty text would be in quotes
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    is_null = pc.equal(items, "NULL")
    return pc.if_else(is_null, pa.scalar(None, pa.string()), items), offsets, nulls


def _quoted(whole: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the items and offsets of arrays with quotes. Row by row: only a parser knows where such an item ends."""
    items: list[str | None] = []
    offsets = [0]
    for cell in whole.to_pylist():
        for match in _ITEM.finditer(cell[1:-1]):
            quoted, plain = match.groups()
            if quoted is not None:
                items.append(_ESCAPED.sub(r"\1", quoted))
            else:
                items.append(None if plain == "NULL" else plain)
        offsets.append(len(items))
    return pa.array(items, pa.string()), pa.array(offsets, pa.int32())
