"""Pins that are kept, in a directory and in a bucket alike: what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from ....schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError
from ...commit.room import Room
from ...manifest.manifest import TableEntry

ALL = 0
"""Stands for a table's number in the id of a pin of all tables."""


def check_name_free(name: str, taken: Container[str]) -> None:
    """Raise AlreadyPresentError if a pin has this name."""
    if name in taken:
        raise AlreadyPresentError(f"there is a pin {name!r} already: drop it first, or choose another name")


def check_room(room: Room, table: int | None, kept: Iterable[int | None]) -> None:
    """Check that one more pin may be kept of a table; ``kept`` are the tables of the others, None: all tables.

    Pins of all tables do not count among those of single tables, so that nobody else's keep copies from being made.
    Raises UnavailableError: there are too many.
    """
    by_table = Counter(kept)
    of_all = by_table.pop(None, 0)
    room.check_kept(None if table is None else by_table[table], by_table.total(), of_all)


def no_kept_pin(pin_id: str) -> NotFoundError:
    """Return the error for a pin that is not kept."""
    return NotFoundError(f"no pin {pin_id!r} is kept: `nyala pin list` shows those that are")


def table_of(pin: str, tables: Sequence[TableEntry], name: str | None) -> TableEntry:
    """Return the table of this name that a pin keeps; the only one if ``name`` is None."""
    found = [table for table in tables if name in (None, table.name)]
    if not found:
        raise NotFoundError(f"the pin {pin!r} keeps no table {name!r}")
    if len(found) > 1:
        raise InvalidArgumentError(f"the pin {pin!r} keeps {len(found):,} tables: name one")
    return found[0]
