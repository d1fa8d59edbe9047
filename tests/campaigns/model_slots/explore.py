"""Breadth first through all states, so that the first violation found is a shortest one.

A state that was seen is kept as its hash only, with its parent's: 64 bits for some millions of states, a chance of one
in a million that two are mixed up. A path is found again by going it once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol


class Model(Protocol):
    """Something whose states are explored; they hash."""

    def initial(self) -> Any:
        """Return the first state."""
        ...

    def steps(self, state: Any) -> Iterator[tuple[str, Any]]:
        """Yield what may happen next, and what it leads to."""
        ...

    def wrong(self, state: Any) -> str:
        """Return which promise a state breaks; nothing if it keeps all."""
        ...


@dataclass(frozen=True)
class Result:
    """What an exploration found: nothing wrong if ``violation`` is empty, and nothing left out if ``is_complete``."""

    states: int
    is_complete: bool
    violation: str = ""
    path: tuple[str, ...] = ()


def explore(model: Model, states_max: int = 10_000_000) -> Result:
    """Visit the states that can be reached, up to the first one that breaks a promise."""
    first = model.initial()
    parents = {hash(first): 0}
    todo = deque([first])
    while todo and len(parents) < states_max:
        state = todo.popleft()
        for _, after in model.steps(state):
            key = hash(after)
            if key in parents:
                continue
            parents[key] = hash(state)
            todo.append(after)
            violation = model.wrong(after)
            if violation:
                return Result(len(parents), False, violation, _path(model, first, parents, key))
    return Result(len(parents), not todo)


def _path(model: Model, state: Any, parents: dict[int, int], key: int) -> tuple[str, ...]:
    """Return the labels of the steps from the first state to that with the hash ``key``."""
    keys = []
    while key != hash(state):
        keys.append(key)
        key = parents[key]
    labels = []
    for wanted in reversed(keys):
        label, state = next((label, after) for label, after in model.steps(state) if hash(after) == wanted)
        labels.append(label)
    return tuple(labels)
