"""What is worked out of the text of an SQL statement, and remembered for the next time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

_RESULTS = 256
_TEXT_MAX = 1 << 16
"""Results of longer texts are not kept."""
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def remembered(work: Callable[Concatenate[str, Rest], Result]) -> Callable[Concatenate[str, Rest], Result]:
    """Return a function of an SQL text that keeps its last results. All that it is given must be hashable."""
    kept = lru_cache(_RESULTS)(work)

    @wraps(work)
    def result(text: str, *rest: Rest.args, **named: Rest.kwargs) -> Result:
        return (kept if len(text) <= _TEXT_MAX else work)(text, *rest, **named)

    return result
