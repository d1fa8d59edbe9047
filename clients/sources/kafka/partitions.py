"""The positions of partitions: rows of the table of positions, one for each partition of a topic and a group.

A position is the offset of the next message. A commit takes the place of the row before it, as that of every source: so
of two processes that believe to own a partition, one commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from ....schemas.errors import ConflictError, RowErrors
from ....schemas.message import Message
from ....schemas.rows.operation import Operation
from ...api.database import Database
from ..positions import Position, Positions, State, is_lost_race
from ..source import SourceTable
from ..staging import StagedCommit

KIND = "kafka"


class LostPartitionError(Exception):
    """Another process of the group has committed messages of a partition: positions are to be read again."""


class ClusterMemo(Message, frozen=True):
    """What the position of a topic's partition keeps to recognize it."""

    cluster: str = ""
    topic_id: str = ""
    """Empty: the broker does not say."""


@dataclass(frozen=True, order=True)
class Partition:
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(frozen=True)
class Advance:
    """A partition of a topic gets further."""

    partition: Partition
    offset: int
    """Of the next message."""
    time: int
    """When the last message was written, in milliseconds since 1970; negative if Kafka does not know."""
    behind: int
    """How many messages follow that are there."""


class Partitions:
    """The positions of all partitions of a group. Two threads may use it, if not for the same partition."""

    def __init__(self, database: Database, group: str) -> None:
        self._database = database
        self._positions = Positions(database)
        self.about = self._positions.about
        self.check_one_server = self._positions.check_one_server
        self._group = group
        self._rows: dict[Partition, Position] = {}
        """Of the partitions that the process owns, or did."""

    def read(self) -> Mapping[Partition, Position]:
        """Read all positions of the group from the store."""
        rows: dict[Partition, Position] = {}
        for source, position in self._positions.read_kind(KIND).items():
            group, _, place = source.partition("/")
            if group == self._group:
                topic, _, number = place.rpartition("/")
                rows[Partition(topic, int(number))] = position
        return rows

    def take(self, partitions: Iterable[Partition]) -> Mapping[Partition, Position]:
        """Read the positions of partitions that the process begins to own, and commit after these. Those that it owns
        already stay as they are here: a commit after another process's is to fail.

        Raises:
            KeyError: one has no position.
        """
        rows = self.read()
        taken = {partition: rows[partition] for partition in partitions}
        self._rows.update(taken)
        return taken

    def row(self, partition: Partition) -> Position:
        """Return the position of a partition as it was taken, or committed since."""
        return self._rows[partition]

    def claim(self, partitions: Mapping[Partition, int], target: str, memo: ClusterMemo) -> None:
        """Write the first positions of partitions of a topic; one that another process has written stays."""
        for partition, offset in sorted(partitions.items()):
            source = f"{self._group}/{partition.topic}/{partition.number}"
            table = SourceTable(name=partition.topic, target=target, columns=[], key=[])
            position = Position(
                source=source,
                kind=KIND,
                commit=1,
                state=State.FOLLOWING,
                position=str(offset),
                applied_at=datetime.now(UTC),
                tables=[table],
                memo=memo.model_dump_json(),
            )
            staging = StagedCommit(self._database._store)
            staging.write(self.about, position.row(), Operation.INSERT)
            try:
                staging.commit()
            except RowErrors as error:
                if not is_lost_race(error):
                    raise

    def move(self, partition: Partition, offset: int, memo: ClusterMemo) -> None:
        """Set a partition to an offset, whatever it was. Raises ConflictError: another process moved it meanwhile."""
        before = self._rows[partition]
        after = before.model_copy(
            update={
                "commit": before.commit + 1,
                "position": str(offset),
                "applied_at": datetime.now(UTC),
                "memo": memo.model_dump_json(),
            }
        )
        staging = StagedCommit(self._database._store)
        self._write(staging, before, after)
        try:
            staging.commit()
        except RowErrors as error:
            if is_lost_race(error):
                raise ConflictError(
                    f"another process changed the position of {partition} meanwhile: start again"
                ) from None
            raise
        self._rows[partition] = after

    def commit(self, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        """Commit what is staged with the new positions of its partitions.

        Raises:
            LostPartitionError: another process has moved one; nothing was applied.
            RowErrors: a row was refused; nothing was applied.
        """
        after: dict[Partition, Position] = {}
        for each in advances:
            before = self._rows[each.partition]
            update = {
                "commit": before.commit + 1,
                "position": str(each.offset),
                "source_time": _moment(each.time) or before.source_time,
                "applied_at": datetime.now(UTC),
                "behind_messages": each.behind,
            }
            after[each.partition] = before.model_copy(update=update)
        staging.write(self.about, _rows([self._rows[each].key() for each in after]), Operation.DELETE)
        staging.write(self.about, _rows([each.row() for each in after.values()]), Operation.INSERT)
        try:
            staging.commit()
        except RowErrors as error:
            if is_lost_race(error):
                raise LostPartitionError from None
            raise
        self._rows.update(after)

    def _write(self, staging: StagedCommit, before: Position, after: Position) -> None:
        staging.write(self.about, before.key(), Operation.DELETE)
        staging.write(self.about, after.row(), Operation.INSERT)


def _rows(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


def _moment(time: int) -> datetime | None:
    return datetime.fromtimestamp(time / 1000, UTC) if time >= 0 else None
