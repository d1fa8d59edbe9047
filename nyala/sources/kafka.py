"""Applies topics of Kafka to tables, each message once: `consume`. It needs `nyala[kafka]`."""

from nyala.clients.sources.kafka.consuming import consume, consumer
from nyala.clients.sources.kafka.group_runner import ConsumeResult, GroupRunner
from nyala.clients.sources.kafka.rejects import REJECTS

__all__ = ["REJECTS", "ConsumeResult", "GroupRunner", "consume", "consumer"]
