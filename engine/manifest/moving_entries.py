"""The entries of a manifest for tablets that move between servers."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from ...schemas.message import Message
from .rowset_entry import RowsetEntry


class MovedEntry(Message, frozen=True, extra="forbid"):
    """A move in the manifest that brought or took a tablet."""

    name: str
    """The name of the move."""
    server: str
    """The other server."""
    tablet: PositiveInt
    """The tablet's number on the server that it came from."""


class ArrivingEntry(Message, frozen=True, extra="forbid"):
    """A tablet in the manifest that another server is about to hand over: all of its files are here, nobody reads them
    yet."""

    name: str
    """The name of the move."""
    server: str
    """The server that has the tablet, or had it: only that server knows whether it was handed over."""
    came_as: PositiveInt
    """The tablet's number there."""
    number: PositiveInt
    """The number of the move's round."""
    tablet: PositiveInt
    """The tablet's future number here, also that of its directory."""
    rowsets: tuple[RowsetEntry, ...] = ()
    history_floor: NonNegativeInt = 0

    @property
    def file_names(self) -> list[str]:
        """The names of its files in its directory."""
        return [name for rowset in self.rowsets for name in rowset.file_names]
