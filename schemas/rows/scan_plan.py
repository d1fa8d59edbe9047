"""The plan of a scan: how a store would run it, and the parts in which it can be read."""

from typing import Any

from pydantic import Field

from ..message import Message, new_dict, new_list
from ..table.partition import HashLevel
from ..table.partition_schema import TabletPartition
from .scan import ScanSpec


class ScanSplit(Message):
    """One part in the store's description of a scan, which can be read independently; rows and bytes are estimates from
    statistics."""

    tablet: int
    rows: int
    bytes: int
    key_lower: str | None = None
    """Encoded keys from here on, hexadecimal; None: from the first. See ``ScanSpec``."""
    key_upper: str | None = None
    partition: TabletPartition | None = None
    """The tablet's partition."""
    server: str | None = None
    """The server that has the tablet; None: the one that was asked."""
    locations: list[str] = Field(default_factory=new_list)
    """The addresses of that server, the preferred one first."""
    planned: str | None = None
    """The digest of the columns on that server; None: the plan's."""
    lease: str | None = None
    """Identifies what that server keeps for the scan; None: the plan's."""

    def ticket(self, spec: ScanSpec) -> ScanSpec:
        """Return the part of ``spec``, a scan pinned to a snapshot, that this split covers."""
        part = {
            "tablet": self.tablet,
            "partition": self.partition,
            "key_lower": self.key_lower,
            "key_upper": self.key_upper,
        }
        return spec.model_copy(update={"split_bytes": None, "all_parts": False, "pin": False, **part})


class ScanPlan(Message):
    """The store's description of how a scan would run: its snapshot and parts, what it skips and why."""

    snapshot: int
    schema_version: int
    splits: list[ScanSplit]
    planned: str | None = None
    """A digest of the columns read, for the tickets: see ``ScanSpec``."""
    hash: list[HashLevel] = Field(default_factory=new_list)
    """The hash levels to which the first buckets of every split's partition belong."""
    explain: dict[str, Any] = Field(default_factory=new_dict)
    groups_at_most: int | None = None
    """Of a partial aggregate: there are surely no more groups than this, which are few; None: there may be many."""
    lease: str | None = None
    """Identifies what the server keeps for the tickets, if asked to: see ``ScanSpec``."""
    tablets_here: str = ""
    """Identifies the tablets that this server has: a sum over them, hexadecimal."""
    tablets_all: str = ""
    """The same for all tablets of the table: the servers' sums add up to it, modulo 2^64."""
    read_here: str = ""
    """Like ``tablets_here``, without tablets in which no row can match."""
    read_all: str = ""
    """Like ``tablets_all``, without tablets in which no row can match."""
