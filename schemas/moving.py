"""Moving a tablet from one server to another: the messages between the two and the driver of the move.

``move_begin`` at the source gives a round: the files of the tablet. The target fetches those that it lacks, and
prepares the tablet with the last round. ``move_hand_over`` at the source is the moment at which the owner changes;
``move_take_over`` lets the target serve the tablet, ``move_forget`` ends the move. See docs/servers.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from .partition_schema import PartitionSchema, TabletPartition
from .table import TableOptions, TableSchema

MOVE_NAME_LENGTH_MAX = 64


class _MoveBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MoveName(_MoveBody):
    """The body of ``move_round``, ``move_status``, ``move_forget`` and ``move_abort``."""

    move: str = Field(min_length=1, max_length=MOVE_NAME_LENGTH_MAX)


class MoveBegin(MoveName):
    """The body of ``move_begin``: begins a move, or its next round."""

    table: str
    tablet: PositiveInt
    """Its number on this server."""
    to: str
    """The server that is to have it."""
    again: bool = False
    """Whether it is the next round of a move that has begun: then one that was given up meanwhile is not begun anew."""
    last: bool = False
    """Let no one write to the tablet for some seconds, so that little can come after this round."""


class MoveFile(_MoveBody):
    """A file of a tablet that moves; files never change."""

    name: str = Field(pattern=r"^[1-9][0-9]{0,18}\.(base|undo|redo)$")
    bytes: NonNegativeInt
    crc: NonNegativeInt
    """The CRC-32 of the whole file."""


class MoveRound(MoveName):
    """The answer of ``move_begin``, and the body of ``move_receive`` and ``move_prepare``."""

    number: PositiveInt
    """Of the round."""
    last: bool
    table: str
    tablet: PositiveInt
    """The number of the tablet at the source."""
    partition: TabletPartition
    source: str
    to: str
    schema_: TableSchema
    options: TableOptions
    partitions: PartitionSchema
    """What the table is made of: a server that came later does not have it yet."""
    clock: NonNegativeInt
    """A timestamp that the source's clock has reached."""
    rowsets: tuple[dict[str, Any], ...]
    """The entries of the source's manifest (docs/format/manifest.md)."""
    history_floor: NonNegativeInt
    files: tuple[MoveFile, ...]


class MoveRead(MoveName):
    """The body of ``move_read``."""

    name: str
    """Of the file."""


class MoveFetch(MoveName):
    """The body of ``move_fetch``."""

    source: str
    """The server that has the file."""
    file: MoveFile


class MoveLacking(_MoveBody):
    """The answer of ``move_receive``."""

    names: tuple[str, ...]
    """The files of the round that are not here yet."""


class MoveHandOver(MoveName):
    """The body of ``move_hand_over``."""

    table: str
    to: str
    """The server that has prepared the tablet."""
    number: PositiveInt
    """The round that it has prepared."""


class MovedAnswers(_MoveBody):
    """The answers to numbered writes to one tablet, by writer."""

    writer: str
    floor: NonNegativeInt
    """Answers to numbers below are not kept any more."""
    answers: tuple[dict[str, Any], ...]


class HandedOver(MoveName):
    """What a source that has handed over a tablet tells of it; the body of ``move_take_over``."""

    table: str
    clock: NonNegativeInt
    """The target gives no commit a timestamp of this or less."""
    last_auto_id: NonNegativeInt
    last_change: NonNegativeInt
    answers: tuple[MovedAnswers, ...] = ()


class MoveState(StrEnum):
    """Where a move stands, as its source knows it."""

    UNDER_WAY = "under_way"
    HANDED_OVER = "handed_over"
    UNKNOWN = "unknown"
    """It was given up, or ended: the tablet can no longer be handed over by it."""


class MoveStatus(_MoveBody):
    """The answer of ``move_status`` and ``move_abort``."""

    state: MoveState
    handed_over: HandedOver | None = None


class MoveNote(MoveName):
    """A move that one server knows of."""

    server: str
    """The other one."""
    tablet: PositiveInt
    """The number of the tablet at the source."""
    number: NonNegativeInt = 0
    """Of the round that was prepared, where it is arriving."""


class Moves(_MoveBody):
    """The answer of ``moves``: those of one table that did not end, and those by which its tablets came."""

    arriving: tuple[MoveNote, ...] = ()
    """Prepared here; whether the tablet was handed over, the other server knows."""
    left: tuple[MoveNote, ...] = ()
    """Handed over by this server, and not forgotten."""
    arrived: tuple[MoveNote, ...] = ()
    """Of tablets that are here."""


class MoveProgress(Protocol):
    """Is told how far a move has come."""

    def __call__(self, done: int, total: int) -> object:
        """``done`` of ``total`` bytes of files are at the target; both may grow."""
        ...
