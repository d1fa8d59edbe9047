"""Whereabouts: which server has which tablet of a table, and with it the server of each row."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas.description import TableDescription, TabletMap
from ...schemas.errors import ConflictError, UnavailableError
from ...schemas.partition_schema import TabletPartition, sum_of
from .members import Members
from .router import NOWHERE, TabletRouter

_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between looks for a tablet that is on its way from one server to another."""


@dataclass(frozen=True, slots=True, eq=False)
class Whereabouts:
    """What is known of one table. Immutable."""

    description: TableDescription
    router: TabletRouter
    names: list[str]
    owners: np.ndarray
    """The place in ``names`` of the server of each tablet, in the router's order."""
    partitions: tuple[TabletPartition, ...] = ()
    """What each tablet holds, in that order."""

    def cut(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        """Return the positions of the rows of each server, ascending, by its name.

        Rows that no tablet takes, and a batch without the columns that matter, are some server's to refuse.
        """
        numbers = self._numbers(rows)
        if numbers is None:
            return {self.names[0]: np.arange(rows.num_rows)}
        owners = np.where(numbers == NOWHERE, 0, self.owners[numbers]) if len(self.owners) else np.zeros_like(numbers)
        if not len(owners):
            return {self.names[0]: owners}
        return {self.names[place]: np.flatnonzero(owners == place) for place in np.unique(owners).tolist()}

    def cut_by_tablet(self, rows: pa.RecordBatch) -> list[tuple[str, str, np.ndarray]]:
        """Return the server of each tablet that rows belong to, what stands for the tablet wherever it is, and the
        positions of its rows. What no tablet takes comes under an empty name."""
        numbers = self._numbers(rows)
        if numbers is None or not len(numbers) or not len(self.owners):
            return [(self.names[0], "", np.arange(rows.num_rows))]
        return [
            (
                self.names[0 if number == NOWHERE else self.owners[number]],
                "" if number == NOWHERE else sum_of([self.partitions[number]]),
                np.flatnonzero(numbers == number),
            )
            for number in np.unique(numbers).tolist()
        ]

    def _numbers(self, rows: pa.RecordBatch) -> np.ndarray | None:
        """Return the tablet of each row, in the router's order; None for rows without the columns that matter."""
        wanted = [column.name for column in self.description.columns if column.id in self.router.column_ids]
        if any(rows.schema.names.count(name) != 1 for name in wanted):
            return None
        return self.router.numbers_of(rows)


class WhereaboutsCache:
    """What is known of the tables; asked for again when it turned out to be old. Thread safe."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._known: dict[str, Whereabouts] = {}
        self._lock = threading.Lock()

    def of(self, table: str) -> Whereabouts:
        """Return what is known of a table.

        Raises:
            UnavailableError: a server cannot be reached, or a tablet is nowhere for longer than a move takes.
            ConflictError: the table is not the same on all servers.
        """
        found = self._known.get(table)
        if found is None:
            found = self._asked(table)
            with self._lock:
                self._known[table] = found
        return found

    def forget(self, table: str) -> None:
        """Ask anew the next time."""
        with self._lock:
            self._known.pop(table, None)

    def _asked(self, table: str) -> Whereabouts:
        for pause in (*_PAUSES, None):
            try:
                maps = self._members.each_with(lambda store: store.tablets(table))
                return united(self._members.store(next(iter(maps))).describe_table(table), maps)
            except UnavailableError:
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("the last look returns or raises")


def incomplete(table: str) -> UnavailableError:
    """Return the error that tells of a tablet which no server has."""
    return UnavailableError(
        f"no server has all tablets of table {table!r} that the others have not: one is on its way between them, or "
        "create_table has not reached all; then make the table again"
    )


def united(description: TableDescription, maps: Mapping[str, TabletMap]) -> Whereabouts:
    """Return what the answers of all servers together tell.

    Raises:
        ConflictError: they do not speak of the same table.
        UnavailableError: not every tablet is on one server: one was moved between the answers.
    """
    names, first = list(maps), next(iter(maps.values()))
    for name, found in maps.items():
        if (found.schema_version, found.partitions) != (first.schema_version, first.partitions):
            raise ConflictError(
                f"table {description.name!r} is not the same on {names[0]!r} and {name!r}: an alteration has reached "
                "only some of the servers; make it again, which brings it to the others"
            )
    numbers = {partition: number for number, partition in enumerate(first.partitions.tablets())}
    owners = np.full(len(numbers), -1, np.int64)
    for place, found in enumerate(maps.values()):
        for tablet in found.tablets:
            if tablet.server is None:
                number = numbers[tablet.partition]
                if owners[number] >= 0:
                    raise UnavailableError("a tablet was moved meanwhile; look again", 0.1)
                owners[number] = place
    if (owners < 0).any():
        raise incomplete(description.name)
    return Whereabouts(description, TabletRouter(first.partitions, description.columns), names, owners, tuple(numbers))
