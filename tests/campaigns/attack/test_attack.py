"""Short attacks; ``make attack`` does them all, and measures."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow.flight as fl
import pytest

from tests.campaigns.attack import stalled_readers
from tests.campaigns.attack.attack import FEW, Honest, Outcome, Server, attacking, run, stop_with_half_open_streams
from tests.campaigns.attack.shown import connect


@pytest.mark.parametrize("name", [pytest.param("bombs", marks=pytest.mark.night), "sessions"])
def test_an_honest_client_is_served_beside_an_attack(name: str) -> None:
    outcome: Outcome = run(name, sys.executable, seconds=1, seed=0, row_count=100_000, patience=2)
    assert outcome.failed == 0 and outcome.asked > 0
    assert outcome.peak_mb < 256 + 64
    assert max(outcome.threads_left, outcome.files_left) <= FEW


def rejected(server: Server) -> float:
    """Return how many strangers were rejected before they got a thread."""
    (result,) = connect(server.url, server.token).do_action(fl.Action("metrics", b""))
    families = json.loads(result.body.to_pybytes())["families"]
    (failures,) = (each for each in families if each["name"] == "nyala_authentication_failures")
    return next(each["value"] for each in failures["samples"] if each["labels"] == {"reason": "crowd"})


def test_a_crowd_of_strangers_takes_no_threads_and_no_request(tmp_path: Path) -> None:
    server = Server(sys.executable, tmp_path / "data", row_count=1_000)
    try:
        honest = Honest(server, seed=0)
        honest.ask_for(0.2)
        before, most = server.held[0], 0
        with attacking("strangers", server):
            deadline = time.monotonic() + 60
            while rejected(server) < 1_000:
                assert honest.ask_for(0.2) and time.monotonic() < deadline
                most = max(most, server.held[0])
    finally:
        server.stop()
    assert honest.failed == 0
    assert most <= before + 2 * FEW


def test_a_server_with_half_open_streams_stops() -> None:
    assert stop_with_half_open_streams(sys.executable, count=100, drain_seconds=3) <= 10


def test_a_fast_reader_reads_on_beside_stalled_ones() -> None:
    outcome = stalled_readers.run(50, "default", rounds=1, seconds=1, settle=5, row_count=1_000_000)
    assert outcome.failed == 0 and outcome.open_streams > 0
    assert max(outcome.threads_left, outcome.files_left) <= FEW
