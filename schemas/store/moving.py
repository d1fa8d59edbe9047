"""Moving a tablet from one server to another: messages between the servers and the client that drives the move.

``move_begin`` at the source returns a round: the files of the tablet. The target fetches those that it lacks, and
prepares the tablet with the last round. ``move_hand_over`` at the source changes the owner; ``move_take_over`` lets the
target serve the tablet; ``move_forget`` ends the move. See docs/servers.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

from pydantic import Field, NonNegativeInt, PositiveInt, SerializerFunctionWrapHandler, model_serializer

from ..message import Message
from ..table.partition_schema import PartitionSchema, TabletPartition
from ..table.table import TableOptions, TableSchema

MOVE_NAME_LENGTH_MAX = 64


class MoveName(Message, frozen=True, extra="forbid"):
    """The body of ``move_round``, ``move_status``, ``move_forget`` and ``move_abort``: which move of a tablet between
    stores."""

    move: str = Field(min_length=1, max_length=MOVE_NAME_LENGTH_MAX)


class MoveBegin(MoveName, frozen=True):
    """The body of ``move_begin``: starts the move of a tablet to another store, or its next round."""

    table: str
    tablet: PositiveInt
    """Its number on this server."""
    to: str
    """The server to move it to."""
    again: bool = False
    """Whether this is a further round: if the move was aborted meanwhile, do not start it again."""
    last: bool = False
    """Reject writers of the tablet for some seconds, so that little changes after this round."""


class MoveFile(Message, frozen=True, extra="forbid"):
    """A file of a moving tablet; files never change."""

    name: str = Field(pattern=r"^[1-9][0-9]{0,18}\.(base|undo|redo)$")
    bytes: NonNegativeInt
    crc: NonNegativeInt | None = None
    """The CRC-32 of the whole file; None: its source is in a bucket, which was not asked for all of it. Its pages have
    checksums of their own."""


class MoveObjects(Message, frozen=True, extra="forbid"):
    """Where in a bucket the files of a round of a move are."""

    cluster: str
    """The uuid of all stores below one root of a bucket."""
    url: str
    """The bucket, as the source calls it."""
    directory: str
    """The names of the objects are those of the files after this."""


class MoveRound(MoveName, frozen=True):
    """A round of a move, the files that it brings: the answer of ``move_begin``, and the body of ``move_receive`` and
    ``move_prepare``."""

    number: PositiveInt
    """The round's number."""
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
    """The table's definition: a server newer than the table does not have it yet."""
    clock: NonNegativeInt
    """A timestamp that the source's clock has reached."""
    rowsets: tuple[dict[str, Any], ...]
    """The entries of the source's manifest (docs/format/manifest.md)."""
    history_floor: NonNegativeInt
    files: tuple[MoveFile, ...]
    objects: MoveObjects | None = None
    """For a target in the same bucket, which has that copy the files. None: the source is in a directory."""

    @model_serializer(mode="wrap")
    def _as_sent(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``objects`` for a source in a directory: version 0.1 rejects members that it does not know."""
        parts = written(self)
        if self.objects is None:
            parts.pop("objects")
        return parts


class MoveRead(MoveName, frozen=True):
    """The body of ``move_read``: a file of a moving tablet that its source sends."""

    name: str
    """The file's name."""


class MoveFetch(MoveName, frozen=True):
    """The body of ``move_fetch``: a file of a moving tablet that its target gets from the source."""

    source: str
    """The server that has the file."""
    file: MoveFile


class MoveLacking(Message, frozen=True, extra="forbid"):
    """The answer of ``move_receive``: the files of a round that the target lacks."""

    names: tuple[str, ...]
    """The files of the round that are not here yet."""


class MoveHandOver(MoveName, frozen=True):
    """The body of ``move_hand_over``: its source gives a moving tablet away."""

    table: str
    to: str
    """The server that has prepared the tablet."""
    number: PositiveInt
    """The round that it has prepared."""


class MovedAnswers(Message, frozen=True, extra="forbid"):
    """The answers to numbered writes that move with a tablet, by writer."""

    writer: str
    floor: NonNegativeInt
    """Answers to smaller numbers are no longer kept."""
    answers: tuple[dict[str, Any], ...]


class HandedOver(MoveName, frozen=True):
    """The source's description of a tablet that it has handed over; the body of ``move_take_over``."""

    table: str
    clock: NonNegativeInt
    """The target's commits get only timestamps greater than this."""
    last_auto_id: NonNegativeInt
    last_change: NonNegativeInt
    answers: tuple[MovedAnswers, ...] = ()


class MoveState(StrEnum):
    """The state of the move of a tablet at its source."""

    UNDER_WAY = "under_way"
    HANDED_OVER = "handed_over"
    UNKNOWN = "unknown"
    """It was aborted, or has ended: it can no longer hand the tablet over."""


class MoveStatus(Message, frozen=True, extra="forbid"):
    """How far the move of a tablet is at its source: the answer of ``move_status`` and ``move_abort``."""

    state: MoveState
    handed_over: HandedOver | None = None


class MoveNote(MoveName, frozen=True):
    """In the answer of ``moves``: a server's record of the move of a tablet."""

    server: str
    """The other server."""
    tablet: PositiveInt
    """The number of the tablet at the source."""
    number: NonNegativeInt = 0
    """The prepared round, if the tablet is arriving."""


class Moves(Message, frozen=True, extra="forbid"):
    """The answer of ``moves``: unfinished moves of a table's tablets, and those by which its tablets came here."""

    arriving: tuple[MoveNote, ...] = ()
    """Prepared here; only the other server knows whether the tablet was handed over."""
    left: tuple[MoveNote, ...] = ()
    """Handed over by this server, and not forgotten."""
    arrived: tuple[MoveNote, ...] = ()
    """Of tablets that came here."""


class MoveProgress(Protocol):
    """Receives the progress of the move of a tablet."""

    def __call__(self, done: int, total: int) -> object:
        """``done`` of ``total`` bytes of files have been copied; both may grow."""
        ...
