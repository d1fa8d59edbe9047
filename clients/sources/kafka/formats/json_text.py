"""JSON objects, one a message, as columns: Arrow reads many at once, joined by newlines.

Every text that is joined begins with a brace, ends with one, and has no newline. Strings of JSON have none either, and
after a closing brace nothing opens but a new object: so no object spans two texts, and as many rows as texts means one
row for each.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from .....schemas.errors import InvalidArgumentError

DEPTH_MAX = 200
"""Brackets that may be open at once: readers of JSON that call themselves must not run out of stack."""


def is_plain(text: bytes) -> bool:
    """Whether Arrow may read the JSON text of a message together with others."""
    return text[:1] == b"{" and text[-1:] == b"}" and b"\n" not in text and not _may_be_deep(text)


def _may_be_deep(text: bytes) -> bool:
    return len(text) > 2 * DEPTH_MAX and text.count(b"[") + text.count(b"{") > DEPTH_MAX


def read_together(texts: Sequence[bytes], schema: pa.Schema, ignores_others: bool = False) -> pa.RecordBatch:
    """Return JSON objects, one a message, as rows with the columns of ``schema``; one that has another field is an
    error, unless these are ignored.

    Raises:
        pa.ArrowInvalid, UnicodeDecodeError: some are not as expected.
    """
    return _read(texts, schema, "ignore" if ignores_others else "error")


def seen_schema(texts: Sequence[bytes]) -> pa.Schema:
    """Return the fields of messages that are JSON objects, with the types that they seem to have.

    Raises:
        pa.ArrowInvalid, UnicodeDecodeError: some are not as expected.
    """
    return _read(texts, None, "infer").schema


def _read(texts: Sequence[bytes], schema: pa.Schema | None, unexpected: str) -> pa.RecordBatch:
    import pyarrow.json

    if not all(map(is_plain, texts)):
        raise pa.ArrowInvalid("a text that is to be read alone")
    block = b"\n".join(texts)
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    parsing = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    rows = pyarrow.json.read_json(io.BytesIO(block), read_options=options, parse_options=parsing)
    if rows.num_rows != len(texts):
        raise pa.ArrowInvalid("a text is not one object")
    return rows.combine_chunks().to_batches()[0]


def read_alone(text: bytes, parse_float: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Return the JSON object of one message as Python has it; ``parse_float`` reads floats.

    Raises:
        InvalidArgumentError: it is none.
    """
    try:
        value = json.loads(text.decode("utf-8-sig"), parse_float=parse_float, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise InvalidArgumentError("it is not UTF-8") from None
    except RecursionError:
        raise InvalidArgumentError("its objects or lists are nested too deeply") from None
    except ValueError as error:
        raise InvalidArgumentError(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"it is not a JSON object, but {_KINDS.get(type(value), 'null')}")
    return value


def float_of(text: str) -> float:
    """Return the float that a text of JSON means. Raises ValueError: it is larger than all floats."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:50]} is too large")
    return number


def with_floats(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON for cells of a type, with floats in place of the words that Kafka Connect writes for NaN
    and infinities.

    Raises:
        ValueError: a number is larger than all floats of its type.
    """
    is_ = pa.types
    if is_.is_floating(kind):
        number = _WORDS.get(value, value) if isinstance(value, str) else value
        if is_.is_float32(kind) and isinstance(value, float) and math.isfinite(value):
            try:
                struct.pack("<f", value)
            except OverflowError:
                raise ValueError(f"the number {value} is too large") from None
        return number
    if is_.is_struct(kind) and isinstance(value, dict):
        return {field.name: with_floats(value.get(field.name), field.type) for field in kind}
    if is_.is_list(kind) and isinstance(value, list):
        return [with_floats(each, kind.value_type) for each in value]
    return value


_WORDS = {word: float(word) for word in ("NaN", "Infinity", "-Infinity")}
_KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}


def _no_number(word: str) -> float:
    return float(word.replace("Infinity", "inf"))
