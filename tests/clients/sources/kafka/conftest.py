"""A Kafka for the tests of a process, and calls that consume until everything is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.sources.kafka import ConsumeResult, consume

from ..kafka_cluster import QUICK, KafkaCluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """A cluster; each test takes topics of its own."""
    cluster = KafkaCluster()
    yield cluster
    cluster.close()


@pytest.fixture
def topic(kafka: KafkaCluster, request: pytest.FixtureRequest) -> str:
    """A topic of one partition, with the name of the test."""
    name = "".join(each if each.isalnum() else "_" for each in request.node.name)[:60]
    kafka.create(name)
    return name


@pytest.fixture
def catch_up(kafka: KafkaCluster) -> Callable[..., ConsumeResult]:
    """Consumes topics until everything is applied. Of a topic that is one table the group has its name."""

    def run(database: Database, topics: Any, **given: Any) -> ConsumeResult:
        options = QUICK | given.pop("options", {})
        group = given.pop("group", "".join(topics))
        return consume(database, kafka.address, topics, group=group, until_caught_up=True, options=options, **given)

    return run
