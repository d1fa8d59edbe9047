"""The messages of a check of all servers: the state of each server and table, and what is wrong with them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from ....schemas.message import Message, new_dict, new_list


class FaultKind(StrEnum):
    """The kinds of faults that a check of all servers can find."""

    SERVER_AWAY = "server_away"
    SERVER_FAILED = "server_failed"
    """It answered with an error."""
    PROCESS_AWAY = "process_away"
    STANDBY_BEHIND = "standby_behind"
    STANDBY_TROUBLE = "standby_trouble"
    STANDBY_ELSEWHERE = "standby_elsewhere"
    """It waits for another store, or for one in another bucket."""
    HOLDERS = "holders"
    """Two processes say that they have one store."""
    NO_WRITES = "no_writes"
    DEGRADED = "degraded"
    DAMAGED_FILE = "damaged_file"
    QUARANTINE = "quarantine"
    CLOCK_AHEAD = "clock_ahead"
    VERSIONS = "versions"
    PLACEMENT = "placement"
    HALF_ALTERED = "half_altered"
    TABLES_DIFFER = "tables_differ"
    TABLET_AWAY = "tablet_away"
    TABLET_MISSING = "tablet_missing"
    TABLET_DOUBLED = "tablet_doubled"
    TABLET_STRANGE = "tablet_strange"
    MOVE = "move"
    CHECKSUM = "checksum"


PASSING = {
    FaultKind.HOLDERS,
    FaultKind.STANDBY_ELSEWHERE,
    FaultKind.HALF_ALTERED,
    FaultKind.TABLES_DIFFER,
    FaultKind.TABLET_MISSING,
    FaultKind.TABLET_DOUBLED,
    FaultKind.TABLET_STRANGE,
    FaultKind.MOVE,
}
"""What servers also say, for a moment, while a table is altered, or a tablet or a store moves: they are not asked at
one moment."""


class Fault(Message, frozen=True):
    """A fault that a check of all servers found, and what to do about it."""

    kind: FaultKind
    what: str
    is_error: bool = True
    """False: a warning, which leaves the cluster healthy."""
    server: str | None = None
    table: str | None = None
    next_step: str = ""


class ProcessState(Message, frozen=True):
    """The state that a check found of one of the processes that can have the store of a server."""

    location: str
    state: Literal["holder", "standby", "away"]
    slots_behind: int | None = None
    """How many slots of the log the holder knows more; None: unknown, or no log in a bucket."""
    age_seconds: float | None = None
    """How long ago it saw the newest slot that it knows, or wrote it."""
    lag_seconds: float | None = None
    """How far its reads are behind, if it is a replica."""


class ServerState(Message, frozen=True):
    """The state of one server that a check of all servers found."""

    server: str
    locations: list[str]
    state: Literal["ok", "degraded", "read_only", "away", "failed"]
    version: str = ""
    tablets: int = 0
    bytes: int = 0
    """Of its tablets, on disk."""
    disk_free_bytes: int | None = None
    processes: list[ProcessState] = Field(default_factory=new_list)
    """Those that can have its store, if there are several."""
    clock_ahead_seconds: float = 0.0
    """Of its own wall clock, or of the server whose clock is earliest."""


class TableState(Message, frozen=True):
    """The state of one table that a check of all servers found."""

    table: str
    schema_version: int
    """The newest of all servers."""
    tablets: int
    """How many it has by its partitions."""
    found: int
    """How many of these are on exactly one of the servers that answered."""
    servers: dict[str, int] = Field(default_factory=new_dict)
    """The number of tablets on each server."""
    rows: int = 0
    bytes: int = 0


class MoveState(Message, frozen=True):
    """The state that a check of all servers found of a tablet on its way from one server to another."""

    table: str
    tablet: int
    """Its number at the source."""
    source: str
    to: str
    state: Literal["prepared", "handed_over"]


class ClusterReport(Message, frozen=True):
    """The report of a check of all servers: their states, and what is wrong."""

    servers: list[ServerState]
    tables: list[TableState]
    moves: list[MoveState] = Field(default_factory=new_list)
    faults: list[Fault] = Field(default_factory=new_list)
    """Errors first."""

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong but for warnings."""
        return not any(fault.is_error for fault in self.faults)

    @property
    def may_pass(self) -> bool:
        """Whether some of it may be gone in a moment, because servers are asked one after the other."""
        return any(fault.kind in PASSING for fault in self.faults)
