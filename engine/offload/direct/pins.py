"""Pins of a store in a directory and in a bucket: their common part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....schemas.errors import (
    AlreadyPresentError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
    UnavailableError,
)
from ....schemas.limits.limits import Limits
from ...catalog.catalog import Catalog
from ...commit.room import Room
from ...manifest.environment import Environment
from ...manifest.manifest import TableEntry
from ...mvcc.clock import Clock
from ...scan.plan.snapshots import Snapshots
from ...table.table import Table

ATTEMPTS = 5
"""How often a pin is begun again because its table was altered meanwhile."""


@dataclass(eq=False)
class Pins:
    """The pins of one store: what directories and buckets have in common. Thread safe."""

    _catalog: Catalog
    _environment: Environment
    _snapshots: Snapshots
    _limits: Limits
    _room: Room
    _clock: Clock
    _new_timestamp: Callable[[], int]
    """Unique at each call."""

    def _found(self, name: str, as_of: int | str | None) -> tuple[Table, int]:
        """Return a table and the snapshot to keep. Raises NotFoundError, and as ``Snapshots.of``."""
        table = self._catalog.table(name)
        return table, self._snapshots.of(as_of, table, "as_of")

    def _new_id(self, table: int) -> str:
        return f"{table}-{self._new_timestamp():x}"

    def _check_kept(self, name: str, table: int | None, kept: Mapping[str, int | None]) -> None:
        """Check that a pin of a table may be kept under a name; ``kept`` are the tables of the others by their names.
        None stands for all tables.

        Pins of all tables do not count among those of single tables, so that nobody else's keep copies from being made.
        Raises AlreadyPresentError, and UnavailableError: there are too many.
        """
        if name in kept:
            raise AlreadyPresentError(f"pin {name!r} already exists: drop it first, or choose another name")
        by_table = Counter(kept.values())
        of_all = by_table.pop(None, 0)
        self._room.check_kept(None if table is None else by_table[table], by_table.total(), of_all)


def no_kept_pin(pin_id: str) -> NotFoundError:
    """Return the error for a pin that no store keeps."""
    return NotFoundError(f"there is no pin {pin_id!r}: `nyala pin list` shows all pins")


def too_old(snapshot: int, table: str) -> SnapshotTooOldError:
    """Return the error for a pin of a snapshot before the history of a table."""
    return SnapshotTooOldError(
        f"snapshot {snapshot} is older than the history that table {table!r} keeps: pin a later one"
    )


def keeps_being_altered(what: str) -> UnavailableError:
    """Return the error of the last attempt to pin ``what``, which keeps being altered."""
    return UnavailableError(f"{what} being altered: try again later", 1.0)


def table_of(pin: str, tables: Sequence[TableEntry], name: str | None) -> TableEntry:
    """Return the table of this name that a pin keeps; the only one if ``name`` is None."""
    found = [table for table in tables if name in (None, table.name)]
    if not found:
        raise NotFoundError(f"pin {pin!r} does not keep table {name!r}")
    if len(found) > 1:
        raise InvalidArgumentError(f"pin {pin!r} keeps {len(found):,} tables: give the name of the table to read")
    return found[0]
