"""Processes that share the store ``a`` of a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nyala.engine.home.opening import home_at
from nyala.engine.recovery.verify_bucket import verify_bucket
from tests.campaigns.failover.name_process import NameProcess, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process; only the bucket is shared. What is in it at the end is sound."""
    running: list[NameProcess] = []

    def run(*flags: str) -> NameProcess:
        running.append(NameProcess(tmp_path / "bucket", tmp_path / f"cache{len(running)}", *flags))
        return running[-1]

    yield run
    for one in running:
        one.end()
    assert verify_bucket(home_at(f"file://{tmp_path / 'bucket'}", "a")).is_sound
