"""A few kills of the consumers of a group and of their store; ``make kafka`` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.campaigns.kafka.campaign import Campaign
from tests.campaigns.kafka.planted import MISTAKES
from tests.dose import dose


def test_each_message_is_applied_once() -> None:
    campaign = Campaign(seed=1)
    campaign.run(messages=dose(40_000, 400_000), kills=dose(3, 20))
    assert campaign.messages == dose(40_000, 400_000) and campaign.events["assignments"] >= dose(1, 4)
    assert campaign.rejects and sum(campaign.hits.values()) > 1, "too little happened to mean anything"
    assert campaign.moments, "no moment was looked at"


@pytest.mark.night
@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name != "none"])
def test_the_campaign_sees_a_mistake(mistake: str) -> None:
    with pytest.raises(AssertionError, match=r"lost|bad messages|twice|at one moment"):
        for number in range(5):  # a lost answer is a matter of chance
            Campaign(number, mistake).run(messages=60_000, kills=12)
