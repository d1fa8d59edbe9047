"""Asks a bucket several things at once: a request takes some 20 ms, whatever it is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_REQUESTS = 16
"""Requests that are under way at the same time."""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def asking() -> ThreadPoolExecutor:
    """Return threads for different requests, of which so many are under way. Its end waits for all answers."""
    return ThreadPoolExecutor(_REQUESTS, "nyala-ask")


def at_once(ask: Callable[[Asked], Answer], asked: Sequence[Asked]) -> list[Answer]:
    """Return the answers, in order. Raises what the first call raises that fails; then some may not have been made."""
    if len(asked) < 2:
        return [ask(each) for each in asked]
    with ThreadPoolExecutor(min(len(asked), _REQUESTS), "nyala-ask") as pool:
        return list(pool.map(ask, asked))
