"""Holding: lets a store begin changes, and refuse requests, only while no other process can have it.

A process that was cut off from its bucket knows the tables, rows and parts of before. What it begins it could not end,
and what it lacks another process may have. Its errors then say that this process has done nothing, and is not the one
to ask: ``locations`` is empty, not None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ...schemas.errors import CorruptionError, InternalError, StorageFullError, StoreError, UnavailableError

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

_OF_THIS_PROCESS = UnavailableError, CorruptionError, StorageFullError, InternalError
"""Errors that say nothing about the newest state of the store."""


class Holding:
    """Lets one open store begin changes only while no other process can have it. Thread safe."""

    def __init__(
        self, check_now: Callable[[], None], is_in_bucket: bool, note_damage: Callable[[StoreError], object]
    ) -> None:
        """``check_now`` raises UnavailableError if another process may have the store: never in a directory.
        ``note_damage`` is told of all errors."""
        self._check_now = check_now
        self._note_damage = note_damage
        self.is_closed = False
        self._elsewhere: list[str] | None = [] if is_in_bucket else None

    def check(self) -> None:
        """Raise UnavailableError, for a request that has not begun, if another process may have the store."""
        try:
            self._check_now()
        except UnavailableError as error:
            raise UnavailableError(error.message, locations=self._elsewhere) from None

    def judge(self, error: StoreError) -> None:
        """Note an error. Raises UnavailableError: it is about the newest state, and only another process may know that
        by now."""
        self._note_damage(error)
        if not isinstance(error, _OF_THIS_PROCESS):
            self.check()

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Judge the error that the body raises."""
        try:
            yield
        except StoreError as error:
            self.judge(error)
            raise

    def closed(self) -> UnavailableError:
        """Return the error of a store that was closed here."""
        return UnavailableError("the store is closed", locations=self._elsewhere)

    def close(self) -> bool:
        """Refuse all verbs from now on; return whether this is the first time."""
        was_closed, self.is_closed = self.is_closed, True
        return not was_closed


class Held(Protocol):
    """A store whose verbs run only while this process has it."""

    @property
    def holding(self) -> Holding:
        """What lets it answer."""
        ...


AnyHeld = TypeVar("AnyHeld", bound=Held)


def verb(method: Callable[Concatenate[AnyHeld, Asked], Answer]) -> Callable[Concatenate[AnyHeld, Asked], Answer]:
    """Make a verb of a store of a method: it runs only while the store is open, and its errors are judged. Not for
    generators."""

    @wraps(method)
    def checked(self: AnyHeld, *args: Asked.args, **named: Asked.kwargs) -> Answer:
        if self.holding.is_closed:
            raise self.holding.closed()
        try:
            return method(self, *args, **named)
        except StoreError as error:
            self.holding.judge(error)
            raise
        except (RuntimeError, CancelledError) as error:
            if self.holding.is_closed:  # it was closed meanwhile, and its threads take no more work
                raise self.holding.closed() from error
            raise

    return checked


def held_verb(method: Callable[Concatenate[AnyHeld, Asked], Answer]) -> Callable[Concatenate[AnyHeld, Asked], Answer]:
    """Return a verb of a store that begins only while no other process can have the store."""

    @wraps(method)
    def begun(self: AnyHeld, *args: Asked.args, **named: Asked.kwargs) -> Answer:
        self.holding.check()
        return method(self, *args, **named)

    return verb(begun)


def held_answer(
    method: Callable[Concatenate[AnyHeld, Asked], Answer],
) -> Callable[Concatenate[AnyHeld, Asked], Answer]:
    """Return a verb of a store that answers only while no other process can have the store: what it did is in no slot
    of a log. Who asks again elsewhere does no harm."""

    @wraps(method)
    def ended(self: AnyHeld, *args: Asked.args, **named: Asked.kwargs) -> Answer:
        answer = method(self, *args, **named)
        self.holding.check()
        return answer

    return verb(ended)
