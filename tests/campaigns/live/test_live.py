"""Readers beside a process that changes a store in every way, for a few seconds, and that their checks can fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nyala.engine.mvcc.replicated import ReplicatedMvcc
from nyala.engine.recovery.log_replay import LoggedTablets
from nyala.engine.replica.read_only_store import ReadOnlyStore
from nyala.engine.replica.segments import SegmentSource
from nyala.engine.wal.segment_tail import SegmentTail
from tests.campaigns.live.campaign import LiveCampaign
from tests.dose import by_night, dose


def test_readers_see_whole_and_fresh_snapshots_whatever_becomes_of_the_holder(tmp_path: Path) -> None:
    campaign = LiveCampaign(tmp_path / "store", seed=0)

    def is_enough() -> bool:
        return campaign.kills >= 1 and campaign.openings >= 2 and campaign.told.steps["left"] > 5

    campaign.run(dose(4, 60), is_enough)
    assert campaign.reads.total() > dose(50, 500), "too little was read to mean anything"


_NUMBERS = count()
Patch = pytest.MonkeyPatch


def _shows_half_of_a_commit(monkeypatch: Patch) -> None:
    """Of some records, the rows of one tablet are left out."""
    parts: Callable[..., list[Any]] = LoggedTablets.parts
    monkeypatch.setattr(LoggedTablets, "parts", lambda self, rows: parts(self, rows) if next(_NUMBERS) % 10 else [])


def _looks_for_no_manifest(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SegmentSource, "_is_replaced", lambda self: self._open_manifest is None)


def _is_stale(monkeypatch: Patch) -> None:
    look: Callable[..., Any] = ReadOnlyStore._look
    monkeypatch.setattr(ReadOnlyStore, "_look", lambda self, seconds: look(self, seconds + 0.3))


def _reads_no_log_behind_the_first_segment(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SegmentTail, "_following", lambda self: None)


def _goes_back(monkeypatch: Patch) -> None:
    """Some reads get a snapshot of a moment ago."""
    snapshot: Callable[..., int] = ReplicatedMvcc.snapshot
    monkeypatch.setattr(ReplicatedMvcc, "snapshot", lambda self: snapshot(self) - (time.time_ns() % 3) * (50_000 << 12))


PLANTED = {
    each.__name__.strip("_"): each
    for each in (
        _shows_half_of_a_commit,
        _looks_for_no_manifest,
        _is_stale,
        _reads_no_log_behind_the_first_segment,
        _goes_back,
    )
}


@pytest.mark.parametrize("name", by_night(PLANTED, day=["is_stale"]))
def test_a_planted_mistake_is_found(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    PLANTED[name](monkeypatch)
    campaign = LiveCampaign(tmp_path / "store", seed=1)
    with pytest.raises(Exception) as found:
        campaign.run(60)
    assert campaign.failures, f"the campaign itself failed: {found.value}"
