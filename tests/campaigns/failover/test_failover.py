"""A few faults of the failover campaign; ``make failover`` runs as many as you like."""

from pathlib import Path

import pytest

from tests.campaigns.failover.campaign import Campaign
from tests.campaigns.failover.faults import Fault, at_point, cut_holder_from_bucket, hand_over, kill, stop
from tests.campaigns.failover.places import PLACES
from tests.campaigns.failover.points import POINTS

FEW: dict[str, dict[Fault, int]] = {
    "directory": {kill: 1, stop: 1, at_point: 1, hand_over: 1},
    "moto": {kill: 1, at_point: 1, hand_over: 1, cut_holder_from_bucket: 1},
}


@pytest.mark.parametrize("way", [pytest.param("directory", marks=pytest.mark.night), "moto"])
def test_nothing_is_lost_doubled_or_stale_when_servers_fail(way: str, tmp_path: Path) -> None:
    campaign = Campaign(seed=3, lease_seconds=1.0, faults=FEW[way], servers=2, moments=500)
    with PLACES[way](tmp_path / "bucket") as place:
        campaign.run(place, tmp_path, faults=len(FEW[way]))
    print(campaign.summary())
    assert campaign.counts["stores"] == 1
    assert campaign.done.total() == len(FEW[way]) and campaign.seconds, "nobody took over"
    assert campaign.counts["writes"] > 30, "too little was written to mean anything"
    assert campaign.counts["moments"] == 500
    assert campaign.counts["reads"] > 10 and campaign.counts["elsewhere"] > 0, "too little was read to mean anything"


def test_there_are_many_named_points() -> None:
    assert len(POINTS) >= 12
