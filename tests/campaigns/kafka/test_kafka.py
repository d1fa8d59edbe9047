"""A few kills of the consumers of a group and of their store; ``make kafka`` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.campaigns.kafka.campaign import Campaign
from tests.dose import dose


def test_each_message_is_applied_once() -> None:
    campaign = Campaign(seed=1)
    campaign.run(messages=dose(40_000, 400_000), kills=dose(3, 20))
    assert campaign.messages == dose(40_000, 400_000) and campaign.assignments >= dose(1, 4)
    assert campaign.rejects and sum(campaign.kills.values()) > 1, "too little happened to mean anything"


@pytest.mark.night
def test_the_campaign_sees_a_mistake() -> None:
    with pytest.raises(AssertionError, match=r"lost|bad messages"):
        Campaign(0, "lose").run(messages=30_000, kills=1)
