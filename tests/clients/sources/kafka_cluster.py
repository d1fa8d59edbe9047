"""A Kafka of librdkafka's own, in this process, that other processes reach, too: no broker is to be installed."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from confluent_kafka import cimpl

from tests.clients.sources.kafka_client import KafkaClient

_PRODUCER = 0
_CONF_OK = 0


def _library() -> ctypes.CDLL:
    """Return the librdkafka that the client has loaded: two of them would know nothing of each other."""
    cimpl.libversion()
    for line in Path("/proc/self/maps").read_text().splitlines():
        if re.search(r"/librdkafka[^/]*\.so", line):
            library = ctypes.CDLL(line.split(maxsplit=5)[5])
            break
    else:
        raise RuntimeError("librdkafka is not loaded")
    for name in ("conf_new", "new", "mock_cluster_new"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


QUICK = {"session.timeout.ms": 600, "heartbeat.interval.ms": 150}
"""Options of consumers: the mock keeps members that have left until their session ends."""


class KafkaCluster(KafkaClient):
    """A mock cluster. It keeps at most 100,000 messages, or 5 MiB, of each partition."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(512)
        config = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(config, b"log_level", b"2", error, 512)
        self._owner = ctypes.c_void_p(self._library.rd_kafka_new(_PRODUCER, config, error, 512))
        assert self._owner.value, error.value
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._owner, brokers))
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 100)
        self._library.rd_kafka_mock_set_controller_id(self._cluster, 1)  # else requests of administrators wait for one
        super().__init__(self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        assert self._library.rd_kafka_mock_topic_delete(self._cluster, topic.encode()) == 0

    def expire(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages of a partition below an offset."""
        assert (
            self._library.rd_kafka_mock_partition_delete_records(
                self._cluster, topic.encode(), partition, ctypes.c_int64(offset)
            )
            == 0
        )

    def set_down(self, is_down: bool, broker: int = 1) -> None:
        """Let a broker refuse connections, or accept them again."""
        name = "down" if is_down else "up"
        assert getattr(self._library, f"rd_kafka_mock_broker_set_{name}")(self._cluster, broker) == 0

    def close(self) -> None:
        """End it."""
        super().close()
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._owner)
