"""What a caller gave as ``where``, as a predicate."""

from typing import Any

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits import Limits
from ...schemas.predicate import Predicate, parse_tree
from .sql import parse_sql


def parse_where(where: str | dict[str, Any] | None, limits: Limits) -> Predicate | None:
    """Return the predicate that SQL text or the JSON of a filter tree stands for; None, for every row, of None.

    Blank text is refused, not taken for None: a filter that got lost on its way must not read everything.

    Raises:
        InvalidArgumentError: naming the part that is wrong, or a limit that is passed.
    """
    if where is None:
        return None
    if isinstance(where, str):
        return parse_sql(where, limits)
    if isinstance(where, dict):
        return parse_tree(where, limits)
    raise InvalidArgumentError(f"where must be SQL text or a filter tree, not {type(where).__name__}")
