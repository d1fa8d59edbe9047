"""The store of the slots of a log: numbered objects, each created once, and chunks beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .slot import Slot


class SlotStore(Protocol):
    """Slots of one log, numbered from 1, and the chunks that have the payloads of some. Thread safe.

    Every call raises UnavailableError if there is no answer; it may be repeated.
    """

    def create(self, number: int, content: bytes) -> bool:
        """Make a slot unless there is one. Return whether it now holds exactly these bytes, because of this call or an
        earlier one. After UnavailableError it may still appear: only another ``create`` with the same bytes tells."""
        ...

    def read(self, number: int, is_patient: bool = True) -> bytes | None:
        """Return what a slot holds; None if there is none. Unless ``is_patient``, try once only."""
        ...

    def numbers(self) -> list[int]:
        """Return the numbers of all slots there are, ascending; none that was made before the call is missing."""
        ...

    def end(self, after: int = 0) -> int:
        """Return the largest number there is, if it is above ``after``; 0 if there is no such slot. Whoever knows an
        earlier slot need not have all listed."""
        ...

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete slots; missing ones are no error."""
        ...

    def put_chunk(self, name: str, content: bytes) -> None:
        """Put a chunk, whose name nobody else uses. After UnavailableError it may still appear."""
        ...

    def read_chunk(self, slot: Slot, index: int) -> bytes | None:
        """Return one of the chunks of a slot; None if it is not there."""
        ...

    def delete_chunks(self, names: Iterable[str]) -> None:
        """Delete chunks; missing ones are no error."""
        ...
