"""The campaign on a broker of Apache Kafka, by night. It fails where there is none: see ``.ci/kafka.sh``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.campaigns.kafka.campaign import Campaign
from tests.campaigns.kafka.planted import MISTAKES
from tests.campaigns.kafka.test_kafka import FOUND

pytestmark = pytest.mark.night
SCRIPT = Path(__file__).parents[3] / ".ci" / "kafka.sh"


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    """See that there is a broker: these tests are not left out where it is missing."""
    ended = subprocess.run([str(SCRIPT)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_each_message_is_applied_once_by_a_real_group() -> None:
    campaign = Campaign(seed=3, is_real=True)
    campaign.run(messages=200_000, kills=24)
    assert campaign.messages == 200_000 and campaign.rejects and campaign.moments > 10
    assert all(campaign.hits.values()) and campaign.events["handed over"] > 8, "too little happened to mean anything"


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name != "none"])
def test_the_campaign_finds_a_planted_mistake(mistake: str) -> None:
    with pytest.raises(AssertionError, match=FOUND[mistake]):
        Campaign(3, mistake, is_real=True).run(messages=100_000, kills=16)
