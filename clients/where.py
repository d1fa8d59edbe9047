"""The forms in which a filter may be given, made into what a scan carries."""

from __future__ import annotations

from typing import Any

from ..schemas.errors import InvalidArgumentError
from ..schemas.literal import to_json
from ..schemas.predicate import from_tuples

Where = str | dict[str, Any] | list[Any] | None
"""SQL text, a filter tree, the list of tuples of ``pyarrow.parquet``, or nothing."""


def where_json(where: Where) -> str | dict[str, Any] | None:
    """Return a filter as SQL text or as a tree that JSON can hold.

    Raises:
        InvalidArgumentError: it is given in another form, or holds a value that no column can have.
    """
    if where is None or isinstance(where, str):
        return where
    if isinstance(where, dict):
        return _jsonable(where)
    if isinstance(where, list):
        return from_tuples(where).model_dump(mode="json")
    raise InvalidArgumentError(
        f"where of type {type(where).__name__} is not understood: give SQL text as in \"delay > 60 and dest = 'LAX'\", "
        "or a list of tuples, as in [('delay', '>', 60), ('dest', '=', 'LAX')], or a filter tree"
    )


def _jsonable(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _jsonable(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_jsonable(value) for value in part]
    return to_json(part)
