"""Two servers that share their tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.pair import Pair


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:  # short: the path of a socket has few characters
        running = Cluster(Path(folder))
        yield running
        running.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Pairs that a test makes itself, to be closed after it."""
    made: list[Pair] = []
    yield made
    for each in made:
        each.close()
