"""Each combination keeps its isolation levels for some seconds, and a mistake in the store breaks them."""

from __future__ import annotations

import pytest

from tests.campaigns.isolation.campaign import Campaign
from tests.campaigns.isolation.planted import PLANTED
from tests.campaigns.isolation.ways import WAYS
from tests.dose import by_night, dose

_LEAST = 100
"""So many transactions of each workload mean something."""


@pytest.mark.parametrize("way", by_night(WAYS, day=["embedded", "server"]))
def test_no_history_has_what_its_level_forbids(way: str) -> None:
    campaign = Campaign(way, seed=0)
    for _ in range(20):  # a busy machine takes longer
        campaign.run(dose(3, 60))
        is_disturbed = len(campaign.counts) >= (1 if way in ("embedded", "server") else 2)
        if is_enough := is_disturbed and all(result.transactions > _LEAST for result in campaign.results):
            break
    assert not campaign.violations, "\n".join(map(str, campaign.violations[:5]))
    assert is_enough, [campaign.counts, *map(str, campaign.results)]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str) -> None:
    mistake = PLANTED[name]
    for seed in range(10):
        campaign = Campaign("embedded", seed, (mistake.promise,))
        with mistake.plant():
            campaign.run(2)
        names = {name for each in campaign.violations for name in (each.name, each.nickname)}
        if names & mistake.anomalies:
            return
    pytest.fail(f"it was not found; seen: {names}")
