"""What tests do to a Kafka from outside, whatever it is: write messages, and look at the offsets of a group."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

_FLUSH_SECONDS = 120


class KafkaClient:
    """Writes to the Kafka at ``servers``; a message is there once, also if it was sent again."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.address = f"kafka://{servers}"
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 5,
                "message.max.bytes": 4_000_000,
                "enable.idempotence": True,
                "log_level": 2,
            }
        )

    def send(
        self, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, partition: int = 0
    ) -> None:
        """Write messages to a partition, and wait until they are there."""
        failures: list[object] = []
        for place, value in enumerate(values):
            while True:
                try:
                    self._producer.produce(
                        topic,
                        value,
                        keys[place] if keys else None,
                        partition,
                        on_delivery=lambda error, message: failures.append(error) if error else None,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(_FLUSH_SECONDS) == 0 and not failures, failures

    def committed(self, group: str, topic: str, partition: int) -> int:
        """Return the offset that a group has told Kafka."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 2})
        try:
            return consumer.committed([TopicPartition(topic, partition)], timeout=10)[0].offset
        finally:
            consumer.close()

    def close(self) -> None:
        """End it."""
        self._producer.flush(1)
