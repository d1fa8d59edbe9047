"""A few cycles of the SIGTERM campaign; ``make stops`` runs as many as you like."""

from tests.campaigns.crash.stops import Stops
from tests.dose import dose


def test_a_loaded_server_stops_cleanly() -> None:
    campaign = Stops(seed=1)
    campaign.run(dose(1, 3))
    assert campaign.acknowledged > 3 and campaign.rows_checked and campaign.slowest > 0
