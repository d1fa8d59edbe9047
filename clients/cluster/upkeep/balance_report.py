"""The messages of balancing: what each server has, the moves that change it, and the result."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from ....schemas.message import Message, new_dict, new_list

MEASURES = ("tables", "bytes", "tablets", "reads", "writes")
"""What the load of a server is counted in. ``tables``: the tablets of each table for itself."""
MARGIN = 0.05
"""By how much of a fair load a move must be worth it."""


@dataclass(frozen=True, slots=True)
class TabletLoad:
    """The load of a tablet, for a plan that balances servers: what it weighs, and where it may be."""

    table: str
    tablet: int
    """Its number on its server."""
    server: str
    bytes: int = 0
    rows_read: int = 0
    rows_written: int = 0
    servers: tuple[str, ...] = ()
    """Where the placement lets it be; empty: nowhere else than where it is."""


class PlannedMove(Message, frozen=True):
    """A move in a plan that balances servers: a tablet, and the server where it is to go."""

    table: str
    tablet: int
    """Its number on ``source``."""
    source: str
    to: str
    bytes: int


class ServerLoad(Message, frozen=True):
    """The load of a server, for a plan that balances servers: what it has, and its share."""

    server: str
    share: float
    """What it is to have of everything, from 0 to 1, by its weight."""
    bytes: int
    """Of its tablets, on disk."""
    tablets: int
    rows_read: int
    """While they were counted."""
    rows_written: int


class BalancePlan(Message, frozen=True):
    """The plan that balances the tablets of servers: the moves after which each has its share, as far as moves of whole
    tablets can reach that."""

    moves: list[PlannedMove] = Field(default_factory=new_list)
    before: list[ServerLoad]
    after: list[ServerLoad]
    deviation_before: dict[str, float] = Field(default_factory=new_dict)
    """By measure, how far the servers are from their shares: the root of the mean square; 0 is even, 0.1 is 10 %."""
    deviation_after: dict[str, float] = Field(default_factory=new_dict)

    @property
    def bytes(self) -> int:
        """The bytes that the moves copy."""
        return sum(move.bytes for move in self.moves)
