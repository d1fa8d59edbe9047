"""Short attacks; ``make attack`` does them all, and measures."""

from __future__ import annotations

import sys

import pytest

from tests.attack import stalled_readers
from tests.attack.attack import FEW, Outcome, run, stop_with_half_open_streams


@pytest.mark.parametrize("name", ["bombs", "sessions"])
def test_an_honest_client_is_served_beside_an_attack(name: str) -> None:
    outcome: Outcome = run(name, sys.executable, seconds=1, seed=0, row_count=100_000, patience=2)
    assert outcome.failed == 0 and outcome.asked > 0
    assert outcome.peak_mb < 256 + 64
    assert max(outcome.threads_left, outcome.files_left) <= FEW


def test_a_server_with_half_open_streams_stops() -> None:
    assert stop_with_half_open_streams(sys.executable, count=100, drain_seconds=3) <= 10


def test_a_fast_reader_reads_on_beside_stalled_ones() -> None:
    outcome = stalled_readers.run(50, "default", rounds=1, seconds=1, settle=5, row_count=1_000_000)
    assert outcome.failed == 0 and outcome.open_streams > 0
    assert max(outcome.threads_left, outcome.files_left) <= FEW
