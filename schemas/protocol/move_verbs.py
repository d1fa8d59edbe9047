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

    @verb(
        "The moves of a table's tablets that did not end, and those by which tablets came: "
        '{"table"}. Answers {"arriving","left","arrived"}.',
        TableName,
        Moves,
        is_read=True,
        needs=ADMINS,
    )
    def moves(self, table: str) -> Moves:
        """Return the moves of a table's tablets."""
        return ANSWER

    @verb(
        'Begin to move a tablet away from this server, or the next round: {"move","table","tablet","to","last"}. '
        "Answers the round: the tablet's files.",
        MoveBegin,
        MoveRound,
        kind=Kind.TASK,
        needs=ADMINS,
    )
    def move_begin(self, asked: MoveBegin) -> MoveRound:
        """Source: flush memory, and return the list of the tablet's files; they stay readable."""
        return ANSWER

    @verb(
        'The newest round of a move, again: {"move"}. The target compares with it.',
        MoveName,
        MoveRound,
        is_read=True,
        needs=ADMINS,
    )
    def move_round(self, move: str) -> MoveRound:
        """Source: return the newest round again. The target asks for it, since it trusts only the source."""
        return ANSWER

    @verb(
        'The bytes of a file of the newest round, as several results: {"move","name"}.',
        MoveRead,
        Pieces(),
        kind=Kind.TASK,
        needs=ADMINS,
    )
    def move_read(self, asked: MoveRead) -> Iterator[bytes]:
        """Source: yield the bytes of a file of the newest round."""
        return ANSWER

    @verb(
        'Tell the server that a tablet moves to of a round: its JSON. Answers {"names"}, the files to be fetched.',
        MoveRound,
        MoveLacking,
        kind=Kind.TASK,
        is_long=True,
        has_nulls=True,
        needs=ADMINS,
    )
    def move_receive(self, asked: MoveRound) -> MoveLacking:
        """Target: receive a round; return the files to fetch."""
        return ANSWER

    @verb(
        'Fetch a file from the server that has it: {"move","source","file"}. Answers {}.',
        MoveFetch,
        kind=Kind.TASK,
        needs=ADMINS,
    )
    def move_fetch(self, asked: MoveFetch) -> None:
        """Target: fetch a file from the source, and check it."""
        return ANSWER

    @verb(
        "Keep the files of the last round, durably: its JSON. Answers {}.",
        MoveRound,
        kind=Kind.TASK,
        is_long=True,
        has_nulls=True,
        needs=ADMINS,
    )
    def move_prepare(self, asked: MoveRound) -> None:
        """Target: keep the files of the last round, durably; the tablet is still the source's."""
        return ANSWER

    @verb(
        'Give a tablet up, durably, once the other server has prepared the round: {"move","number"}. Answers what '
        "move_take_over takes.",
        MoveHandOver,
        HandedOver,
        kind=Kind.TASK,
        needs=ADMINS,
    )
    def move_hand_over(self, asked: MoveHandOver) -> HandedOver:
        """Source: give the tablet up, durably, if the target has all of it."""
        return ANSWER

    @verb(
        "Serve a tablet that was handed over: what move_hand_over answered.",
        HandedOver,
        kind=Kind.TASK,
        is_long=True,
        has_nulls=True,
        needs=ADMINS,
    )
    def move_take_over(self, asked: HandedOver) -> None:
        """Target: serve the tablet."""
        return ANSWER

    @verb('End a move, at the server that the tablet came from: {"move"}. Answers {}.', MoveName, needs=ADMINS)
    def move_forget(self, move: str) -> None:
        """Source: forget the move, once the target serves the tablet."""
        return ANSWER

    @verb(
        'Where a move away from this server stands: {"move"}. Answers '
        '{"state":"under_way"|"handed_over"|"unknown"}, and what was handed over.',
        MoveName,
        MoveStatus,
        is_read=True,
        needs=ADMINS,
    )
    def move_status(self, move: str) -> MoveStatus:
        """Source: return the state of a move."""
        return ANSWER

    @verb(
        'Give a move up, unless the tablet was handed over: {"move"}. As move_status.',
        MoveName,
        MoveStatus,
        needs=ADMINS,
    )
    def move_abort(self, move: str) -> MoveStatus:
        """Abort a move, unless it was handed over, as the answer says. NOT_FOUND if there is none."""
        return ANSWER
