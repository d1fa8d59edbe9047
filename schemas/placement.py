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

from pydantic import Field, field_validator, model_validator

from .message import Message, new_dict
from .partition_schema import Cell, PartitionSchema, RangePartition, TabletPartition

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Rule(Message, frozen=True, extra="forbid"):
    """Assigns tablets to a server: those of one range, of certain buckets, or both."""

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
    """The placement of one table's tablets."""

    servers: tuple[str, ...] = ()
    """The servers that share the tablets without a rule; empty: all."""
    place: tuple[Rule, ...] = ()
    """The first rule that covers a tablet applies."""


class Placement(Message, frozen=True, extra="forbid"):
    """The placement file: the servers by name, each with its locations, the preferred one first."""

    servers: dict[str, tuple[str, ...]] = Field(min_length=1)
    tables: dict[str, TablePlacement] = Field(default_factory=new_dict)

    @field_validator("servers", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """Accept one location instead of a list."""
        if not isinstance(given, dict):
            return given
        return {name: (found,) if isinstance(found, str) else found for name, found in given.items()}

    @model_validator(mode="after")
    def _check(self) -> Placement:
        for name, locations in self.servers.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"a server's name must be up to 64 letters, digits, '_', '.' and '-', not {name!r}")
            if not locations:
                raise ValueError(f"server {name!r} has no location")
        for table, placed in self.tables.items():
            for name in (*placed.servers, *(rule.server for rule in placed.place)):
                if name not in self.servers:
                    known = ", ".join(self.servers)
                    raise ValueError(f"table {table!r} is placed on the unknown server {name!r}; known: {known}")
        return self

    def servers_of(self, table: str) -> set[str]:
        """Return the servers that may get tablets of a table."""
        placed = self.tables.get(table, TablePlacement())
        return {*(placed.servers or self.servers), *(rule.server for rule in placed.place)}

    def homes(self, table: str, partitions: PartitionSchema) -> dict[TabletPartition, str]:
        """Return the server for each initial tablet of a table of this name.

        Without a rule, the tablets of a range go to the servers in turn, in bucket order; the first server depends only
        on the table's name and the range's lower end. So all servers place later ranges alike, whatever ranges exist.
        """
        placed = self.tables.get(table, TablePlacement())
        turn = placed.servers or tuple(self.servers)
        return {
            partition: next((rule.server for rule in placed.place if rule.covers(partition)), turn[number % len(turn)])
            for partition, number in _numbered(table, partitions)
        }


def _numbered(table: str, partitions: PartitionSchema) -> Iterator[tuple[TabletPartition, int]]:
    for each in partitions.ranges:
        first = zlib.crc32(f"{table} {_ends(each)}".encode())
        count = prod(level.buckets for level in partitions.hash_of(each))
        yield from zip(partitions.tablets_of(each), range(first, first + count), strict=True)


def _ends(each: RangePartition) -> str:
    return repr(each.lower)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A placement as one of its servers sees it."""

    placement: Placement
    server: str

    def elsewhere(self, table: str, partitions: PartitionSchema) -> dict[TabletPartition, str | None]:
        """Return, for each tablet of a new table or range, the other server that has it; None for this one."""
        homes = self.placement.homes(table, partitions)
        return {partition: None if home == self.server else home for partition, home in homes.items()}
