"""A few seconds of slow scans under a second of history; ``make leases`` runs them for as long as you like."""

import pytest

from nyala.engine.scan.plan.planned_scans import PlannedScans
from nyala.schemas.errors import SnapshotTooOldError
from tests.campaigns.race.leases import LeaseCampaign


def test_slow_scans_keep_their_snapshot() -> None:
    campaign = LeaseCampaign(seed=0, scan_seconds=2)
    campaign.run(4)
    assert campaign.scans > 2 and campaign.rounds > 5, "too little was done to mean anything"


def test_without_leases_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlannedScans, "of", lambda self, ticket: None)
    with pytest.raises(SnapshotTooOldError):
        LeaseCampaign(seed=0, scan_seconds=2).run(30)
