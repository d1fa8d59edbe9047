"""The placement file: which server has which tablets of tables that several servers share.

A placement lists the servers and, for new tables, the server of each tablet. The servers store this decision when a
tablet is created, so that later changes of the file move nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from pydantic import (
    Field,
    NonNegativeFloat,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from ..errors import InvalidArgumentError
from ..message import Message, new_dict
from ..table.partition_schema import Cell, PartitionSchema, RangePartition, TabletPartition
from .locations import locations_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Rule(Message, frozen=True, extra="forbid"):
    """A rule of a placement: assigns tablets to a server: those of one range, of certain buckets, or both."""

    server: str
    lower: tuple[Cell, ...] | None = None
    """The lower end of their range, as in ``describe_table``; None: any."""
    buckets: tuple[int, ...] = ()
    """Their buckets in the first hash levels; later levels may have any."""

    def covers(self, partition: TabletPartition) -> bool:
        """Return whether the rule applies to a tablet."""
        in_range = self.lower is None or self.lower == partition.lower
        return in_range and partition.buckets[: len(self.buckets)] == self.buckets


class TablePlacement(Message, frozen=True, extra="forbid"):
    """The placement of one table's tablets on servers."""

    servers: tuple[str, ...] = ()
    """The servers that share the tablets without a rule; empty: all."""
    place: tuple[Rule, ...] = ()
    """The first rule that covers a tablet applies."""


class Placement(Message, frozen=True, extra="forbid"):
    """The placement file: the servers by name, each with its locations: of them, the one that has the server's store
    counts, and the first of those."""

    servers: dict[str, tuple[str, ...]] = Field(min_length=1)
    tables: dict[str, TablePlacement] = Field(default_factory=new_dict)
    weights: dict[str, NonNegativeFloat] = Field(default_factory=new_dict)
    """What each server is to have, relative to the others, when tablets are balanced; 1 if left out. A server of weight
    0 gets only tablets for which a rule names it."""

    @field_validator("servers", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """Accept one location instead of a list, and several in one text."""
        if not isinstance(given, dict):
            return given
        return {name: _locations(found) for name, found in given.items()}

    @model_validator(mode="after")
    def _check(self) -> Placement:
        for name, locations in self.servers.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"a server's name must be up to 64 letters, digits, '_', '.' and '-', not {name!r}")
            if not locations:
                raise ValueError(f"server {name!r} has no location")
        if strange := sorted(self.weights.keys() - self.servers.keys()):
            known = ", ".join(self.servers)
            raise ValueError(f"there is a weight for the unknown server {strange[0]!r}; known: {known}")
        if not any(self.weight_of(name) for name in self.servers):
            raise ValueError("every server has the weight 0: at least one server must take tablets")
        for table, placed in self.tables.items():
            for name in (*placed.servers, *(rule.server for rule in placed.place)):
                if name not in self.servers:
                    known = ", ".join(self.servers)
                    raise ValueError(f"table {table!r} is placed on the unknown server {name!r}; known: {known}")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out weights if there are none: older clients do not know them."""
        return {name: value for name, value in write(self).items() if value or name != "weights"}

    def weight_of(self, server: str) -> float:
        """Return the weight of a server."""
        return self.weights.get(server, 1.0)

    def servers_of(self, table: str) -> set[str]:
        """Return the servers that may get tablets of a table."""
        placed = self.tables.get(table, TablePlacement())
        return {*self._sharing(placed), *(rule.server for rule in placed.place)}

    def _sharing(self, placed: TablePlacement) -> tuple[str, ...]:
        """Return the servers of the tablets without a rule: those that have a weight, or all if none of them has."""
        named = placed.servers or tuple(self.servers)
        return tuple(name for name in named if self.weight_of(name)) or named

    def homes(self, table: str, partitions: PartitionSchema) -> dict[TabletPartition, str]:
        """Return the server for each initial tablet of a table of this name.

        Without a rule, the tablets of a range go to the servers in turn, in bucket order; the first server depends only
        on the table's name and the range's lower end. So all servers place later ranges alike, whatever ranges exist.
        """
        found: dict[TabletPartition, str] = {}
        for partition, number in _numbered(table, partitions):
            allowed = self.allowed(table, partition)
            found[partition] = allowed[number % len(allowed)]
        return found

    def allowed(self, table: str, partition: TabletPartition) -> tuple[str, ...]:
        """Return the servers that may have a tablet: that of the first rule that covers it, or those that share
        the table."""
        placed = self.tables.get(table, TablePlacement())
        for rule in placed.place:
            if rule.covers(partition):
                return (rule.server,)
        return self._sharing(placed)


def _locations(given: Any) -> Any:
    """Return the locations of a server as they are known elsewhere; what are none, as given."""
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(each, str) for each in listed):
        return given
    try:
        return locations_of(listed)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from None


def _numbered(table: str, partitions: PartitionSchema) -> Iterator[tuple[TabletPartition, int]]:
    for each in partitions.ranges:
        first = zlib.crc32(f"{table} {_ends(each)}".encode())
        count = prod(level.buckets for level in partitions.hash_of(each))
        yield from zip(partitions.tablets_of(each), range(first, first + count), strict=True)


def _ends(each: RangePartition) -> str:
    return repr(each.lower)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The placement of tablets as one of its servers sees it."""

    placement: Placement
    server: str

    def elsewhere(self, table: str, partitions: PartitionSchema) -> dict[TabletPartition, str | None]:
        """Return, for each tablet of a new table or range, the other server that has it; None for this one."""
        homes = self.placement.homes(table, partitions)
        return {partition: None if home == self.server else home for partition, home in homes.items()}
