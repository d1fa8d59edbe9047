"""A Kafka cluster: its address, its options, the topics, and its errors as those of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from ....schemas.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
)
from .partitions import ClusterMemo, Partition

_SCHEME = "kafka://"
_PORT = 9092
ANSWER_SECONDS = 10.0
"""How long a broker may take for an answer."""
_ID_SECONDS = 3.0
_OWN = frozenset(
    {"bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset"}
    | {"enable.partition.eof"}
)
"""Options that decide whether messages are applied once; they are not the caller's."""
_DEFAULTS: Mapping[str, Any] = {
    "client.id": "nyala",
    "partition.assignment.strategy": "cooperative-sticky",
    "topic.metadata.refresh.interval.ms": 30_000,  # partitions that are added are seen within this time
    "queued.max.messages.kbytes": 32 << 10,
    "queued.min.messages": 50_000,
    "isolation.level": "read_committed",
    "log_level": 2,  # what fails is told as an error of ours
}
_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


class UnknownTopicError(NotFoundError):
    """No broker of Kafka that answers knows a topic."""


class Cluster:
    """What it takes to reach a cluster of Kafka."""

    def __init__(self, address: str, group: str, options: Mapping[str, Any]) -> None:
        """Raises InvalidArgumentError: the address or an option is wrong."""
        hosts = address.removeprefix(_SCHEME).rstrip("/").split(",")
        if not address.startswith(_SCHEME) or not all(hosts):
            raise InvalidArgumentError("give the address of the brokers as kafka://host:9092, or kafka://host1,host2")
        if not group or "/" in group:
            raise InvalidArgumentError("the name of the group must not be empty, nor have a slash")
        if taken := _OWN & options.keys():
            raise InvalidArgumentError(f"the option {min(taken)} cannot be set: the store keeps the positions")
        self.servers = ",".join(host if ":" in host else f"{host}:{_PORT}" for host in hosts)
        self._config: dict[str, Any] = {
            **_DEFAULTS,
            **options,
            "bootstrap.servers": self.servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        self.is_cooperative = "cooperative" in str(self._config["partition.assignment.strategy"])
        """Whether partitions are assigned and revoked one by one."""
        self._topic_ids: dict[str, str] = {}

    def consumer(self, on_error: Callable[[KafkaError], None]) -> confluent_kafka.Consumer:
        """Return a consumer of the group. Raises InvalidArgumentError: an option is wrong."""
        try:
            return confluent_kafka.Consumer({**self._config, "error_cb": on_error})
        except (KafkaException, ValueError, TypeError) as error:
            raise InvalidArgumentError(f"Kafka's client rejects its options: {_text(error)}") from None

    def topics(self, consumer: confluent_kafka.Consumer, names: Sequence[str]) -> dict[str, list[int]]:
        """Return the partitions of topics.

        Raises:
            UnknownTopicError: one does not exist, or the broker has just started and does not know it yet.
            UnavailableError: no broker answers.
        """
        partitions: dict[str, list[int]] = {}
        for name in names:
            try:
                metadata = consumer.list_topics(name, timeout=ANSWER_SECONDS)
            except KafkaException as error:
                raise self.translated(error.args[0]) from None
            topic = metadata.topics[name]
            if topic.error is not None:
                raise self.translated(topic.error, name)
            partitions[name] = sorted(topic.partitions)
            self.cluster_id = metadata.cluster_id or ""
        return partitions

    cluster_id = ""
    """The cluster's own name for itself, once ``topics`` was asked."""

    def memo(self, topic: str) -> ClusterMemo:
        """Return what recognizes a topic of this cluster."""
        if topic not in self._topic_ids:
            self._topic_ids[topic] = self._topic_id(topic)
        return ClusterMemo(cluster=self.cluster_id, topic_id=self._topic_ids[topic])

    def forget(self) -> None:
        """Ask for the topics again: they may be others by now."""
        self._topic_ids.clear()

    def _topic_id(self, topic: str) -> str:
        """Return the number that a topic has for its life; empty if the broker knows none: it is older than 2.8."""
        admin = self._admin()  # without it there is no answer
        try:
            answers = admin.describe_topics(TopicCollection([topic]), request_timeout=_ID_SECONDS)
            return str(answers[topic].result(_ID_SECONDS).topic_id or "")
        except (KafkaException, TimeoutError):
            return ""

    def _admin(self) -> AdminClient:
        own = _OWN | {"partition.assignment.strategy", "isolation.level"}
        kept = {
            name: value for name, value in self._config.items() if name not in own and not name.startswith("queued")
        }
        return AdminClient({**kept, "bootstrap.servers": self.servers})

    def count_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has now; not by a consumer, which may wait for whoever asks.

        Raises:
            UnknownTopicError: it does not exist.
            UnavailableError: no broker answers.
        """
        try:
            there = self._admin().list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        except KafkaException as error:
            raise self.translated(error.args[0], topic) from None
        if there.error is not None:
            raise self.translated(there.error, topic)
        return len(there.partitions)

    def ends(self, consumer: confluent_kafka.Consumer, partition: Partition) -> tuple[int, int]:
        """Return the offset of the first message of a partition, and that of the next one.

        Raises:
            UnavailableError: the broker does not answer.
        """
        place = confluent_kafka.TopicPartition(partition.topic, partition.number)
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise self.translated(error.args[0], partition.topic) from None
        return low, high

    def translated(self, error: KafkaError, topic: str = "") -> StoreError:
        """Return an error of Kafka as one of the store."""
        text = f"Kafka at {self.servers}: {error.str()}"
        code = error.code()
        if code in _UNKNOWN:
            return UnknownTopicError(f"Kafka at {self.servers} has no topic {topic}" if topic else text)
        if code in _REFUSED:
            return PermissionDeniedError(text)
        if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            return UnauthenticatedError(text)
        return UnavailableError(text)


def _text(error: Exception) -> str:
    given = error.args[0] if error.args else error
    return given.str() if isinstance(given, KafkaError) else str(given)
