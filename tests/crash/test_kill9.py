"""A few cycles of the kill -9 campaign; ``make kill9`` runs as many as you like."""

from tests.crash.kill9 import Campaign


def test_a_killed_server_has_all_that_it_acknowledged() -> None:
    campaign = Campaign(seed=0)
    campaign.run(8)
    assert campaign.cycles == 8
    assert campaign.acknowledged > 50, "too little was written to mean anything"
    assert campaign.rows_checked > 100
