"""Mistakes that the campaign must find when they are planted in a consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from nyala.clients.sources.kafka import applying, membership
from nyala.clients.sources.kafka.partitions import Advance, Partition, Partitions
from nyala.clients.sources.staging import StagedCommit
from nyala.schemas.errors import UnavailableError

_SECONDS = 10
_PAUSE = 0.5


def lose() -> None:
    """Commit the positions of the second batch of a process without its rows, as if they were commits of their own."""
    commit, batches = Partitions.commit, []

    def losing(self: Partitions, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        batches.append(staging.rows)
        commit(self, StagedCommit(self._database._store) if len(batches) == 2 else staging, advances)

    Partitions.commit = losing


def early_offsets() -> None:
    """Commit the offsets first, and then the rows."""
    commit = Partitions.commit

    def early(self: Partitions, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        commit(self, StagedCommit(self._database._store), advances)
        if not staging.is_empty:
            staging.commit()

    Partitions.commit = early


def offsets_in_kafka() -> None:
    """Commit rows alone; the offsets that count are Kafka's, and the store is told them afterwards, for show."""
    commit = Partitions.commit

    def rows_first(self: Partitions, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        if not staging.is_empty:
            staging.commit()
        _commit_as_last(commit, self, StagedCommit(self._database._store), list(advances))

    Partitions.commit = rows_first
    start_from_kafka()


def start_from_kafka() -> None:
    """After a rebalance, go on at the offset that Kafka was told, not at that of the store."""
    positions = membership.Member._positions

    def from_kafka(self: membership.Member, given: Sequence[Partition]) -> dict[Partition, int]:
        places = positions(self, given)
        asked = [TopicPartition(each.topic, each.number) for each in places]
        for each in self._consumer.committed(asked, timeout=_SECONDS) if asked else []:
            if each.offset >= 0:
                places[Partition(each.topic, each.partition)] = each.offset
        return places

    membership.Member._positions = from_kafka


def retry_without_number() -> None:
    """Send a batch again whose answer did not come, as one that follows whatever the store has by then."""
    committed = applying.BatchApplier._committed

    def again(self: applying.BatchApplier, batch: applying.Batch, *rest: Any) -> bool:
        until = time.monotonic() + _SECONDS
        while True:
            try:
                return committed(self, batch, *rest)
            except UnavailableError:
                _take_again(self._partitions, batch.advances, until)

    applier: Any = applying.BatchApplier
    applier._committed = again


def _take_again(partitions: Partitions, given: Iterable[Partition], until: float) -> None:
    """Read the positions of partitions, as soon as the store answers."""
    while True:
        try:
            partitions.take(given)
            return
        except UnavailableError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)


def _commit_as_last(
    commit: Callable[[Partitions, StagedCommit, Iterable[Advance]], None],
    partitions: Partitions,
    staging: StagedCommit,
    advances: Sequence[Advance],
) -> None:
    partitions.take([each.partition for each in advances])
    commit(partitions, staging, advances)


MISTAKES: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "lose": lose,
    "early-offsets": early_offsets,
    "offsets-in-kafka": offsets_in_kafka,
    "start-from-kafka": start_from_kafka,
    "retry-without-number": retry_without_number,
}
