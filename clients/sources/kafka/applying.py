"""Applies batches of messages: rows, rejects and positions in one commit of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....schemas.errors import InvalidArgumentError, RowErrors
from ....schemas.phrases import counted
from ....schemas.rows.operation import Operation
from ...api.database import Database
from ..staging import StagedCommit
from .formats.decoded import Decoded, Format, Messages
from .partitions import Advance, Partition, Partitions
from .rejects import Reject, rejects_table, rows_of_rejects
from .topic_table import Staged, TopicTable, message_of, without


@dataclass(frozen=True)
class Batch:
    """Messages of Kafka that are applied in one commit."""

    messages: Sequence[Messages]
    """Those of each topic."""
    advances: Mapping[Partition, Advance]

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(map(len, self.messages))


@dataclass
class Counts:
    """What a run has applied of Kafka's messages, in numbers."""

    messages: int = 0
    """Messages that came, the rejected ones included."""
    rejects: int = 0
    commits: int = 0
    last_reason: str = field(default="", repr=False)


class BatchApplier:
    """Applies batches to the tables of topics. One thread uses it."""

    def __init__(
        self,
        database: Database,
        group: str,
        partitions: Partitions,
        topics: Mapping[str, tuple[TopicTable, Format]],
        rejects_max: int | None,
    ) -> None:
        self._database = database
        self._group = group
        self._partitions = partitions
        self._topics = topics
        self._rejects_max = rejects_max
        self._rejects_about = rejects_table(database)
        self.counts = Counts()

    def apply(self, batch: Batch) -> None:
        """Commit a batch.

        Raises:
            LostPartitionError: another process owns one of its partitions by now; nothing was applied.
            InvalidArgumentError: there are more rejects than the run may have; the batch was applied.
            StoreError: a table is not there, or the store or the registry cannot be reached.
        """
        decoded = [self._decoded(each) for each in batch.messages]
        rejects: list[dict[int, str]] = [
            {number: why for part in parts for number, why in part.rejects.items()} for parts in decoded
        ]
        while not self._committed(batch, decoded, rejects):
            pass
        self.counts.messages += batch.count
        self.counts.commits += 1
        if count := sum(map(len, rejects)):
            self.counts.rejects += count
            self.counts.last_reason = next(iter(next(filter(None, rejects)).values()))
        if self._rejects_max is not None and self.counts.rejects > self._rejects_max:
            raise InvalidArgumentError(
                f"{counted(self.counts.rejects, 'message')} could not be applied, more than rejects_max "
                f"({self._rejects_max:,}); see them in the table nyala_rejects; the reason of the last message: "
                f"{self.counts.last_reason}"
            )

    def _decoded(self, messages: Messages) -> list[Decoded]:
        """Return what the messages of a topic make of its table. If some are wrong, the table may have changed: it is
        looked at anew."""
        table, format = self._topics[messages.topic]
        parts = table.decode(format, messages)
        if any(part.rejects for part in parts) and table.has_changed():
            parts = table.decode(format, messages)
        return parts

    def _committed(self, batch: Batch, decoded: Sequence[Sequence[Decoded]], rejects: Sequence[dict[int, str]]) -> bool:
        """Try to commit; return whether it worked. If not, the messages of the refused rows are among the rejects."""
        staging = StagedCommit(self._database._store)
        staged: list[list[Staged]] = []
        try:
            for messages, parts, wrong in zip(batch.messages, decoded, rejects, strict=True):
                table, _ = self._topics[messages.topic]
                numbers = np.array(list(wrong), np.int64)
                staged.append([])
                for part in parts:
                    staged[-1] += table.stage(without(part, numbers) if len(numbers) else part, staging)
            rows = [
                reject
                for messages, wrong in zip(batch.messages, rejects, strict=True)
                for reject in self._rejected(messages, wrong)
            ]
            if rows:
                staging.write(self._rejects_about, rows_of_rejects(self._group, rows), Operation.UPSERT)
            self._partitions.commit(staging, batch.advances.values())
        except RowErrors as error:
            if not self._take(error, staged, rejects):
                raise
            return False
        except BaseException:
            staging.abort()
            raise
        return True

    def _take(self, error: RowErrors, staged: Sequence[Sequence[Staged]], rejects: Sequence[dict[int, str]]) -> bool:
        """Add the messages of refused rows to the rejects; return whether there are some."""
        news = 0
        for each in error.result.errors:
            for parts, wrong in zip(staged, rejects, strict=True):
                number = message_of(each, parts)  # pyright: ignore[reportArgumentType] - of a transaction
                if number is not None and number not in wrong:
                    wrong[number] = f"the table refuses it: {each.message}"
                    news += 1
        return news > 0

    def _rejected(self, messages: Messages, wrong: Mapping[int, str]) -> list[Reject]:
        table, _ = self._topics[messages.topic]
        return [
            Reject(
                topic=messages.topic,
                partition=messages.partitions[number],
                offset=messages.offsets[number],
                table=table.name,
                reason=why,
                time=messages.times[number],
                key=messages.keys[number],
                value=messages.values[number],
            )
            for number, why in sorted(wrong.items())
        ]
