"""Where the tablets of tables are, when several servers share them: the placement file and what it says.

A placement names the servers and, for tables to come, which server gets which tablet. What was decided when a tablet
was made is kept by the servers, so that a later change of the file moves nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from .partition_schema import Cell, PartitionSchema, RangePartition, TabletPartition

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Part):
    """Tablets that go to a certain server: those of one range, of certain buckets, or both."""

    server: str
    lower: tuple[Cell, ...] | None = None
    """The lower end of their range, as ``describe_table`` tells it; None: whatever it is."""
    buckets: tuple[int, ...] = ()
    """Their buckets in the first hash levels; a level that is left out may have any."""

    def covers(self, partition: TabletPartition) -> bool:
        """Whether it speaks of a tablet."""
        in_range = self.lower is None or self.lower == partition.lower
        return in_range and partition.buckets[: len(self.buckets)] == self.buckets


class TablePlacement(_Part):
    """Where the tablets of one table go."""

    servers: tuple[str, ...] = ()
    """Those that share the tablets of which no rule speaks; empty: all."""
    place: tuple[Rule, ...] = ()
    """Rules, of which the first that covers a tablet holds."""


class Placement(_Part):
    """The placement file: the servers by name, each with its locations, the one to be preferred first."""

    servers: dict[str, tuple[str, ...]] = Field(min_length=1)
    tables: dict[str, TablePlacement] = Field(default_factory=dict)

    @field_validator("servers", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """Take one location for a list of one."""
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
        """Return the server of each tablet that a table of that name is made with.

        Without a rule, the tablets of a range go to the servers in turn, in the order of their buckets; which server
        comes first depends on the table's name and the lower end of the range alone. So ranges that come later are
        placed alike by all servers, and nothing that is there has a part in it.
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
        """Return, for each tablet of a new table or range, the other server that has it; None where it is this one."""
        homes = self.placement.homes(table, partitions)
        return {partition: None if home == self.server else home for partition, home in homes.items()}
