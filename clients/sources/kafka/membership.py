"""A member of a group: the partitions that it owns, and their messages in batches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ....schemas.errors import ConflictError, UnavailableError
from ..source import BatchLimits
from .applying import Batch, BatchApplier
from .cluster import Cluster
from .formats.decoded import Format, Messages
from .partitions import Advance, ClusterMemo, LostPartitionError, Partition, Partitions
from .topic_table import TopicTable

_DOWN_SECONDS = 10.0
"""How long all brokers may be out of reach before the member leaves, and tries anew."""
_CONFIRM_SECONDS = 2.0
_LOOK_SECONDS = 0.5
"""How often a member looks at the positions of others."""
_FEW = 500
"""How many messages are taken at once before their size is known."""
_CONSUMED_MAX = 1_000_000
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_PASSING = frozenset({KafkaError._MAX_POLL_EXCEEDED})
"""Errors after which Kafka's client goes on by itself."""


class Member:
    """One membership in a consumer group of Kafka. One thread uses it, and one that it hands batches to."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: Partitions,
        topics: Mapping[str, tuple[TopicTable, Format]],
        start: str,
        limits: BatchLimits,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._topics = topics
        self._start = start
        self._limits = limits
        self._consumer: Consumer = cluster.consumer(self._on_error)
        self._next: dict[Partition, int] = {}
        """The partitions that it owns, and the offset of the next message of each."""
        self._targets: dict[Partition, int] = {}
        """Where partitions ended when they were first seen."""
        self._applied: dict[Partition, Advance] = {}
        self._running: Future[None] | None = None
        self._failure: BaseException | None = None
        self._down_at: float | None = None
        self._is_assigned = False
        self._confirmed_at = self._looked_at = 0.0
        self._bytes_each = 0.0

    def join(self, pool: ThreadPoolExecutor, applier: BatchApplier, accept_gap: bool) -> None:
        """Join the group; batches are applied in the pool.

        Raises:
            UnknownTopicError: a topic does not exist.
            UnavailableError: no broker answers.
        """
        self._pool, self._applier, self._accept_gap = pool, applier, accept_gap
        self._cluster.forget()
        for topic, numbers in self._cluster.topics(self._consumer, list(self._topics)).items():
            table, _ = self._topics[topic]
            table.count_partitions = partial(self._cluster.count_partitions, topic)
            table.refresh()
            for number in numbers:
                partition = Partition(topic, number)
                self._targets[partition] = self._cluster.ends(self._consumer, partition)[1]
        self._consumer.subscribe(
            list(self._topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def leave(self) -> None:
        """Leave the group."""
        if self._running is not None:
            with suppress(BaseException):
                self._running.result()
            self._running = None
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    # Partitions come and go: these methods are called within ``poll``

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down_at = self._down_at or time.monotonic()
        elif error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED) or error.fatal():
            self._failure = self._failure or self._cluster.translated(error)

    def _on_assign(self, consumer: Consumer, given: Sequence[TopicPartition]) -> None:
        try:
            self._settle()
            offsets = self._positions([Partition(each.topic, each.partition) for each in given])
            places = [TopicPartition(each.topic, each.number, offset) for each, offset in offsets.items()]
            if self._cluster.is_cooperative:
                consumer.incremental_assign(places)
            else:
                consumer.assign(places)
            self._next.update(offsets)
            self._is_assigned = True
        except BaseException as error:  # raised by ``poll``, and not out of Kafka's client
            self._failure = self._failure or error

    def _on_revoke(self, consumer: Consumer, given: Sequence[TopicPartition]) -> None:
        """Commit what has come of partitions before another member gets them."""
        try:
            self._settle()
        except BaseException as error:
            self._failure = self._failure or error
        self._on_lost(consumer, given)

    def _on_lost(self, consumer: Consumer, given: Sequence[TopicPartition]) -> None:
        for each in given:
            self._next.pop(Partition(each.topic, each.partition), None)

    def _positions(self, given: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offsets from which partitions are read; new ones get a position in the store.

        Raises:
            ConflictError: messages after a position are gone, or the position is one of another cluster.
        """
        rows = self._partitions.read()
        seen_topics = {partition.topic for partition in rows}
        for topic in {each.topic for each in given}:
            news = [each for each in given if each.topic == topic and each not in rows]
            is_first = self._start == "earliest" or topic in seen_topics
            starts = {each: self._cluster.ends(self._consumer, each)[0 if is_first else 1] for each in news}
            if starts:
                self._partitions.claim(starts, self._topics[topic][0].name, self._cluster.memo(topic))
        rows = self._partitions.take(given)
        return {each: self._checked(each, int(rows[each].position or 0), rows[each].memo) for each in given}

    def _checked(self, partition: Partition, offset: int, memo: str) -> int:
        """Return the offset to read a partition from."""
        was, now = ClusterMemo.model_validate_json(memo or "{}"), self._cluster.memo(partition.topic)
        low, high = self._cluster.ends(self._consumer, partition)
        self._targets.setdefault(partition, high)
        table = self._partitions.row(partition).tables[0].target
        if table != self._topics[partition.topic][0].name:
            raise ConflictError(
                f"so far the group has applied {partition} to the table {table!r}: name that table, or give another "
                "--group, which begins anew"
            )
        if was.cluster and now.cluster and was.cluster != now.cluster and not self._accept_gap:
            raise ConflictError(
                f"the position of {partition} is from the Kafka cluster {was.cluster}, but this is the cluster "
                f"{now.cluster}: give another --group, which begins anew; if the topic moved here, --accept-gap "
                "continues with the oldest message of the topic"
            )
        is_other = (was.topic_id, was.cluster) != (now.topic_id or was.topic_id, now.cluster or was.cluster)
        if low <= offset <= high and not (is_other and was.topic_id):
            return offset
        if not self._accept_gap:
            raise self._gone(partition, offset, low, high)
        self._partitions.move(partition, low, now)
        return low

    def _gone(self, partition: Partition, offset: int, low: int, high: int) -> ConflictError:
        why = (
            f"messages {offset} to {low - 1} of {partition} were deleted before they were applied (the topic keeps "
            f"{low} to {high - 1})"
            if offset < low
            else f"the position of {partition} is {offset}, but the topic ends at {high}: the topic was created again"
        )
        return ConflictError(
            f"{why}. All earlier messages are applied, and no later ones. Let the source send its rows again, as by a "
            "new snapshot of Debezium, or keep messages longer (retention.ms); then --accept-gap continues with the "
            f"oldest message, {low}"
        )

    # Messages

    def poll(self) -> bool:
        """Take the next messages, and hand them on; return whether Kafka answers.

        Raises:
            LostPartitionError, StoreError: they cannot be applied; leave, and join again.
        """
        fitting = max(self._limits.bytes / self._bytes_each, 1) if self._bytes_each else _FEW
        count = int(min(self._limits.rows, fitting))
        try:
            taken = self._consumer.consume(min(count, _CONSUMED_MAX), max(self._limits.seconds, 0.01))
        except KafkaException as error:
            raise self._cluster.translated(error.args[0]) from None
        self._raise_failure()
        batch = self._batch(taken)
        if taken:
            self._down_at = None
        elif self._down_at is not None and time.monotonic() - self._down_at > _DOWN_SECONDS:
            raise UnavailableError(f"no broker of Kafka at {self._cluster.servers} answers")
        if batch.advances:
            self._settle()
            self._running = self._pool.submit(self._apply, batch)
        elif self._running is not None and self._running.done():
            self._settle()
        if time.monotonic() - self._confirmed_at > _CONFIRM_SECONDS:
            self.confirm()
        return self._down_at is None and (self._is_assigned or bool(taken))

    def _batch(self, taken: Sequence[Any]) -> Batch:
        """Return messages as a batch, without those that the store has already."""
        columns: dict[str, tuple[list[Any], ...]] = {}
        advances: dict[Partition, int] = {}
        times: dict[Partition, int] = {}
        size = count = 0
        for message in taken:
            partition = Partition(message.topic(), message.partition())
            offset = message.offset()
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    if offset > self._next.get(partition, offset):  # marks of transactions are no messages
                        self._next[partition] = advances[partition] = offset
                else:
                    self._take_error(error, partition)
                continue
            expected = self._next.get(partition)
            if expected is None or offset < expected:
                continue
            self._next[partition] = advances[partition] = offset + 1
            kind, moment = message.timestamp()
            times[partition] = moment if kind else -1
            value, key = message.value(), message.key()
            if (lists := columns.get(partition.topic)) is None:
                lists = columns[partition.topic] = ([], [], [], [], [])
            for cells, cell in zip(lists, (key, value, partition.number, offset, times[partition]), strict=True):
                cells.append(cell)
            size += len(value or b"") + len(key or b"")
            count += 1
        if count:
            self._bytes_each = max(size / count, 1.0)
        messages = [Messages(topic, *lists) for topic, lists in columns.items()]
        return Batch(
            messages, {each: self._advance(each, offset, times.get(each, -1)) for each, offset in advances.items()}
        )

    def _advance(self, partition: Partition, offset: int, moment: int) -> Advance:
        place = TopicPartition(partition.topic, partition.number)
        _, high = self._consumer.get_watermark_offsets(place, cached=True)
        return Advance(partition, offset, moment, max(high - offset, 0))

    def _take_error(self, error: KafkaError, partition: Partition) -> None:
        """Raise the error of a partition, unless it passes by itself."""
        if error.code() in _GONE:
            if partition in self._next:
                low, high = self._cluster.ends(self._consumer, partition)
                offset = self._next[partition]
                raise LostPartitionError if low <= offset <= high else self._gone(partition, offset, low, high)
        elif error.code() not in _PASSING:
            raise self._cluster.translated(error, partition.topic)

    def _apply(self, batch: Batch) -> None:
        self._applier.apply(batch)
        self._applied.update(batch.advances)

    def _settle(self) -> None:
        """Wait until the batch that is being applied is committed."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def settle(self) -> None:
        """Wait until everything that was taken is committed."""
        self._settle()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def confirm(self) -> None:
        """Tell Kafka up to where the store has the partitions: other tools show it. Nothing is read from there."""
        self._confirmed_at = time.monotonic()
        places = [
            TopicPartition(each.topic, each.number, advance.offset)
            for each, advance in list(self._applied.items())
            if each in self._next
        ]
        if places:
            with suppress(KafkaException):
                self._consumer.commit(offsets=places, asynchronous=True)

    # How far it is

    def is_caught_up(self) -> bool:
        """Whether all messages are applied that were there when it joined, also those of other members."""
        if not self._is_assigned or (self._running is not None and not self._running.done()):
            return False
        if any(offset < self._targets.get(each, 0) for each, offset in self._next.items()):
            return False
        others = [each for each in self._targets if each not in self._next]
        if not others:
            return True
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return False
        self._looked_at = time.monotonic()
        rows = self._partitions.read()
        return all(each in rows and int(rows[each].position or 0) >= self._targets[each] for each in others)

    def lag(self) -> tuple[int, float | None]:
        """Return how many messages follow that Kafka has, and the age of the last applied one when it was applied."""
        applied = [advance for each, advance in list(self._applied.items()) if each in self._next]
        times = [advance.time for advance in applied if advance.time >= 0]
        behind = sum(advance.behind for advance in applied)
        return behind, max(time.time() - max(times) / 1000, 0.0) if times and behind else 0.0 if times else None

    @property
    def place(self) -> str:
        """How many partitions it has, as text."""
        return f"{len(self._next)} partitions"
