"""The messages of the campaign: their numbers are their offsets, and some are no JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

BAD_EVERY = 997
"""One in so many messages is no JSON."""
_AHEAD = 25_000
"""So many messages of a partition may wait for consumers, so that the harm is spread over the load; the mock forgets
more than 5 MiB."""
_SLICE = 2_000


class Kafka(Protocol):
    """What the load writes to."""

    def send(self, topic: str, values: list[bytes | None], keys: None = None, partition: int = 0) -> None:
        """Write messages."""
        ...


class Load:
    """Sends messages to partitions of a topic, not too far ahead of the consumers."""

    def __init__(self, kafka: Kafka, topic: str, partitions: int, messages: int) -> None:
        self._kafka = kafka
        self._topic = topic
        self._each = messages // partitions
        self.sent = [0] * partitions
        self._applied = [0] * partitions

    @property
    def share(self) -> float:
        """How much of the load is sent."""
        return sum(self.sent) / (self._each * len(self.sent))

    @property
    def is_over(self) -> bool:
        """Whether everything is sent."""
        return min(self.sent) >= self._each

    def is_applied(self, positions: Mapping[int, int]) -> bool:
        """Whether the store has everything."""
        return all(positions.get(part, 0) == count for part, count in enumerate(self.sent))

    def send(self, positions: Mapping[int, int]) -> None:
        """Send a little to each partition that has room."""
        is_idle = True
        for part, count in enumerate(self.sent):
            self._applied[part] = max(self._applied[part], positions.get(part, 0))
            end = min(count + _SLICE, self._each, self._applied[part] + _AHEAD)
            if end > count:
                is_idle = False
                values: list[bytes | None] = [value_of(part, number) for number in range(count, end)]
                self._kafka.send(self._topic, values, partition=part)
                self.sent[part] = end
        if is_idle:
            time.sleep(0.05)


def is_bad(number: int) -> bool:
    """Whether a message is no JSON."""
    return number % BAD_EVERY == BAD_EVERY - 1


def bad_below(position: int) -> int:
    """Return how many messages of a partition below an offset are no JSON."""
    return position // BAD_EVERY


def text_of(part: int, number: int) -> str:
    """Return the text in a message."""
    return f"{part}/{number * 7919 % 1_000_003}"


def value_of(part: int, number: int) -> bytes:
    """Return a message; its number is its offset."""
    if is_bad(number):
        return b"{no"
    return f'{{"part":{part},"number":{number},"text":"{text_of(part, number)}"}}'.encode()
