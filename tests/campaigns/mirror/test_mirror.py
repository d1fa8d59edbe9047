"""A few kills of a mirror, its PostgreSQL and its store; ``make mirror`` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.campaigns.mirror.campaign import Campaign
from tests.clients.sources.postgres_server import has_postgres
from tests.dose import dose

pytestmark = pytest.mark.skipif(not has_postgres(), reason="there is no PostgreSQL: .ci/postgres.sh installs it")


def test_a_mirror_that_is_killed_has_every_row_and_tears_no_transaction() -> None:
    campaign = Campaign(seed=1)
    campaign.run(seconds=dose(20, 60), kills=dose(4, 15), calm_seconds=2)
    assert sum(campaign.kills.values()) == dose(4, 15)
    assert campaign.transactions > 500 and campaign.snapshots > 5, "too little happened to mean anything"


@pytest.mark.night
@pytest.mark.parametrize("mistake", ["tear", "confirm-first"])
def test_the_campaign_sees_mistakes(mistake: str) -> None:
    for seed in range(5):
        try:
            Campaign(seed, mistake).run(seconds=40, kills=6, calm_seconds=1)
        except AssertionError as error:
            assert "torn snapshots" in str(error) or "rows differ" in str(error)
            return
    raise AssertionError(f"the campaign did not see the mistake {mistake!r}")
