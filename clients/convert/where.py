"""Converts a filter from any accepted form into the one that a scan carries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from ...schemas.cells.literal import to_json
from ...schemas.errors import InvalidArgumentError
from ...schemas.rows.predicate import from_tuples
from .expression import tree_of

if TYPE_CHECKING:
    import pyarrow.compute as pc

Where: TypeAlias = "str | dict[str, Any] | list[Any] | pc.Expression | None"
"""SQL text, a filter tree, the list of tuples of ``pyarrow.parquet``, a ``pyarrow.compute.Expression``, or nothing."""


def where_json(where: Where) -> str | dict[str, Any] | None:
    """Convert a user's filter of any form to SQL text or to a tree that JSON can hold.

    Raises:
        InvalidArgumentError: it has another form, or holds a value that no column can have.
    """
    if where is None or isinstance(where, str):
        return where
    if isinstance(where, dict):
        if "op" not in where:
            raise InvalidArgumentError(
                f"where={where!r:.200} is not a filter: write it as text, as in \"city = 'Oslo'\", or as tuples, as in "
                "[('city', '=', 'Oslo')]"
            )
        return _jsonable(where)
    if isinstance(where, list):
        return from_tuples(where).model_dump(mode="json")
    if isinstance(where, tuple):
        raise InvalidArgumentError(f"where={where!r:.200} is one condition: put it into a list, as in [{where!r:.100}]")
    if _is_expression(where):
        return tree_of(where)
    raise InvalidArgumentError(
        f"where cannot be of type {type(where).__name__}: give SQL text as in \"delay > 60 and dest = 'LAX'\", "
        "or a list of tuples, as in [('delay', '>', 60), ('dest', '=', 'LAX')], or a pyarrow.compute.Expression, "
        "as in pc.field('delay') > 60, or a filter tree"
    )


def _is_expression(where: object) -> bool:
    """An expression exists only if pyarrow.compute is imported: so do not import it here, which is expensive."""
    compute = sys.modules.get("pyarrow.compute")
    return compute is not None and isinstance(where, compute.Expression)


def _jsonable(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _jsonable(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_jsonable(value) for value in part]
    return to_json(part)
