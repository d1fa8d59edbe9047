"""MoveVerbs: the methods of a store by which a tablet moves from one server to another; see ``verbs``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..store.moving import (
    HandedOver,
    MoveBegin,
    MoveFetch,
    MoveHandOver,
    MoveLacking,
    MoveName,
    MoveRead,
    MoveRound,
    Moves,
    MoveStatus,
)
from .command import TableName
from .need import ADMINS
from .verb import ANSWER, Kind, Pieces, verb


class MoveVerbs(Protocol):
    """The verbs of moves, for the servers that share a table. Every method may raise ``StoreError``."""

    @verb(TableName, Moves, is_read=True, needs=ADMINS)
    def moves(self, table: str) -> Moves:
        """Return the unfinished moves of a table's tablets, and those by which its tablets came to this server."""
        return ANSWER

    @verb(MoveBegin, MoveRound, kind=Kind.TASK, needs=ADMINS)
    def move_begin(self, asked: MoveBegin) -> MoveRound:
        """Source: begin to move a tablet away from this server, or begin the next round. Flush memory, and return the
        list of the tablet's files; they stay readable."""
        return ANSWER

    @verb(MoveName, MoveRound, is_read=True, needs=ADMINS)
    def move_round(self, move: str) -> MoveRound:
        """Source: return the newest round again. The target asks for it, since it trusts only the source."""
        return ANSWER

    @verb(MoveRead, Pieces(), kind=Kind.TASK, needs=ADMINS)
    def move_read(self, asked: MoveRead) -> Iterator[bytes]:
        """Source: return the bytes of a file of the newest round."""
        return ANSWER

    @verb(MoveRound, MoveLacking, kind=Kind.TASK, is_long=True, has_nulls=True, needs=ADMINS)
    def move_receive(self, asked: MoveRound) -> MoveLacking:
        """Target: receive a round; return the files to fetch."""
        return ANSWER

    @verb(MoveFetch, kind=Kind.TASK, needs=ADMINS)
    def move_fetch(self, asked: MoveFetch) -> None:
        """Target: fetch a file from the source, and check it."""
        return ANSWER

    @verb(MoveRound, kind=Kind.TASK, is_long=True, has_nulls=True, needs=ADMINS)
    def move_prepare(self, asked: MoveRound) -> None:
        """Target: keep the files of the last round, durably; the tablet is still the source's."""
        return ANSWER

    @verb(MoveHandOver, HandedOver, kind=Kind.TASK, needs=ADMINS)
    def move_hand_over(self, asked: MoveHandOver) -> HandedOver:
        """Source: give the tablet up, durably, if the target has prepared all of it. The answer is for
        ``move_take_over``."""
        return ANSWER

    @verb(HandedOver, kind=Kind.TASK, is_long=True, has_nulls=True, needs=ADMINS)
    def move_take_over(self, asked: HandedOver) -> None:
        """Target: serve the tablet that the source has handed over."""
        return ANSWER

    @verb(MoveName, needs=ADMINS)
    def move_forget(self, move: str) -> None:
        """Source: forget the move, once the target serves the tablet."""
        return ANSWER

    @verb(MoveName, MoveStatus, is_read=True, needs=ADMINS)
    def move_status(self, move: str) -> MoveStatus:
        """Source: return the state of a move, and what was handed over."""
        return ANSWER

    @verb(MoveName, MoveStatus, needs=ADMINS)
    def move_abort(self, move: str) -> MoveStatus:
        """Abort a move, unless it was handed over, as the answer says. NOT_FOUND if there is none."""
        return ANSWER
