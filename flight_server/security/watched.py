"""Watched: the items of a running scan, each after a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


class Watched(Iterator[Item]):
    """Items, each after a check. Closing it closes them, begun or not."""

    def __init__(self, items: Iterator[Item], check: Callable[[], None]) -> None:
        self._items = items
        self._check = check

    def __next__(self) -> Item:
        self._check()
        return next(self._items)

    def close(self) -> None:
        """Release what the items hold."""
        if close := getattr(self._items, "close", None):
            close()
