"""A few kills of the consumers of a group and of their store; ``make kafka`` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.campaigns.kafka.campaign import Campaign
from tests.dose import dose

FOUND = {
    "lose": r"lost|bad messages|at one moment",
    "early-offsets": r"lost|bad messages|at one moment",
    "offsets-in-kafka": r"twice|at one moment",
    "no-fence": r"twice|at one moment",
    "start-from-kafka": r"twice|at one moment",
    "retry-without-number": r"twice|at one moment",
}
"""How the campaign tells of each mistake."""


def test_each_message_is_applied_once() -> None:
    campaign = Campaign(seed=1)
    campaign.run(messages=dose(40_000, 400_000), kills=dose(3, 20))
    assert campaign.messages == dose(40_000, 400_000) and campaign.events["assignments"] >= dose(1, 4)
    assert campaign.rejects and sum(campaign.hits.values()) > 1, "too little happened to mean anything"
    assert campaign.moments, "no moment was looked at"


@pytest.mark.night
def test_the_campaign_sees_a_mistake() -> None:
    with pytest.raises(AssertionError, match=FOUND["lose"]):
        Campaign(0, "lose").run(messages=30_000, kills=1)
