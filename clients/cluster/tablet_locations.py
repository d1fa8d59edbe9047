"""TabletLocations: which server has which tablet of a table, and so the server of each row."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas.cells.moment import python_cell
from ...schemas.errors import UnavailableError
from ...schemas.store.description import TableDescription, TabletMap
from ...schemas.table.partition_schema import TabletPartition, sum_of
from .definitions import shared
from .router import NOWHERE, TabletRouter
from .servers import Servers

_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between look-ups while a tablet is in transit between servers."""


@dataclass(frozen=True, eq=False)
class TabletLocations:
    """The server of each tablet of one table. Immutable."""

    description: TableDescription
    router: TabletRouter
    names: list[str]
    owners: np.ndarray
    """For each tablet, in the router's order, the index in ``names`` of its server."""
    partitions: tuple[TabletPartition, ...] = ()
    """The partition of each tablet, in that order."""

    @cached_property
    def routed(self) -> RoutedRows:
        """Finds the tablets of single rows."""
        return RoutedRows(self)

    def by_server(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        """Return the ascending positions of each server's rows, by server name.

        Rows that no tablet covers, and batches without the needed columns, go to some server, which refuses them.
        """
        numbers = self._numbers(rows)
        if numbers is None:
            return {self.names[0]: np.arange(rows.num_rows)}
        owners = np.where(numbers == NOWHERE, 0, self.owners[numbers]) if len(self.owners) else np.zeros_like(numbers)
        if not len(owners):
            return {self.names[0]: owners}
        return {self.names[place]: np.flatnonzero(owners == place) for place in np.unique(owners).tolist()}

    def by_tablet(self, rows: pa.RecordBatch) -> list[tuple[str, str, np.ndarray]]:
        """Return, for each tablet that has rows: its server, a name that stays the same when it moves, and the
        positions of the rows. Rows that no tablet covers come under an empty name."""
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
        """Return the tablet of each row, in the router's order; None if a needed column is missing."""
        if any(rows.schema.names.count(column.name) != 1 for column in self.router.columns):
            return None
        return self.router.numbers_of(rows)


class RoutedRows:
    """The server of each of some rows of one table. Immutable."""

    def __init__(self, known: TabletLocations) -> None:
        key = known.description.primary_key
        self._router = known.router
        self._columns = [column.name for column in known.router.columns]
        self._key_places = [key.index(name) for name in self._columns]
        self._places = [
            (known.names[owner], sum_of([partition]))
            for owner, partition in zip(known.owners.tolist(), known.partitions, strict=True)
        ]

    def of_key(self, key: Sequence[Any]) -> str | None:
        """Return the server of a key; None if only the batch lane can tell."""
        found = self._placed([key[place] for place in self._key_places])
        return None if found is None else found[0]

    def of_row(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the server of a row, as Python values by column, and its tablet's name; as ``of_batch``."""
        if any(name not in row for name in self._columns):
            return None
        return self._placed([row[name] for name in self._columns])

    def of_batch(self, rows: pa.RecordBatch) -> tuple[str, str] | None:
        """Return the server of the only row of a batch and its tablet's name, as ``by_tablet`` does; None if only the
        batch lane can tell."""
        names = rows.schema.names
        if any(names.count(name) != 1 for name in self._columns):
            return None
        try:
            return self._placed([python_cell(rows.column(name)[0]) for name in self._columns])
        except ValueError:  # text that is not UTF-8
            return None

    def _placed(self, values: Sequence[Any]) -> tuple[str, str] | None:
        found = self._router.number_of(values)
        return None if found is None or found == NOWHERE else self._places[found]


class TabletLocationsCache:
    """Caches which server has which tablet of the tables; ``forget`` drops outdated ones. Thread safe."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._known: dict[str, TabletLocations] = {}
        self._lock = threading.Lock()

    def of(self, table: str) -> TabletLocations:
        """Return the locations of a table's tablets.

        Raises:
            UnavailableError: a server cannot be reached, or a tablet stays in transit for longer than a move takes.
            ConflictError: the table differs between servers.
        """
        found = self._known.get(table)
        if found is None:
            found = self._asked(table)
            with self._lock:
                self._known[table] = found
        return found

    def known(self, table: str) -> TabletLocations | None:
        """Return the locations of a table's tablets if they are known: no server is asked."""
        return self._known.get(table)

    def forget(self, table: str) -> None:
        """Ask the servers again next time."""
        with self._lock:
            self._known.pop(table, None)

    def _asked(self, table: str) -> TabletLocations:
        for pause in (*_PAUSES, None):
            try:
                maps = self._servers.each_with(lambda store: store.tablets(table))
                described = self._servers.each_with(lambda store: store.describe_table(table))
                return united(shared(described), maps)
            except UnavailableError:
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("the last attempt neither returned nor raised")


def incomplete(table: str) -> UnavailableError:
    """Return the error for a tablet that no server has."""
    return UnavailableError(
        f"a tablet of table {table!r} is on no server: if it is moving between servers, try again; if create_table did "
        "not reach all servers, repeat create_table"
    )


def united(description: TableDescription, maps: Mapping[str, TabletMap]) -> TabletLocations:
    """Combine the answers of all servers about the tablets of a table.

    While an alteration of the ranges has reached only some servers, they report two partition schemas. The newest whose
    tablets are all present counts.

    Raises:
        UnavailableError: a tablet is on no server or on two: it moved between the answers.
    """
    told = {found.schema_version: found.partitions for found in maps.values()}
    for _, partitions in sorted(told.items(), key=lambda each: each[0], reverse=True):
        tablets = tuple(partitions.tablets())
        owners = _owners(tablets, maps.values())
        if (owners >= 0).all():
            return TabletLocations(
                description, TabletRouter(partitions, description.columns), list(maps), owners, tablets
            )
    raise incomplete(description.name)


def _owners(tablets: Sequence[TabletPartition], maps: Iterable[TabletMap]) -> np.ndarray:
    """Return the index of each tablet's server, -1 for none."""
    here: dict[TabletPartition, int] = {}
    for place, found in enumerate(maps):
        for tablet in found.tablets:
            if tablet.server is None and here.setdefault(tablet.partition, place) != place:
                raise UnavailableError("a tablet moved to another server during the request; try again", 0.1)
    undivided = [(partition, here[partition]) for partition in here.keys() - set(tablets)]
    return np.array([here.get(tablet, _before_division(tablet, undivided)) for tablet in tablets], np.int64)


def _before_division(heir: TabletPartition, undivided: Iterable[tuple[TabletPartition, int]]) -> int:
    """Return the index of the server on which a tablet is not split yet; each half shares one end with the whole."""
    for partition, place in undivided:
        shares_end = partition.lower == heir.lower or partition.upper == heir.upper
        if shares_end and partition.buckets == heir.buckets:
            return place
    return -1
