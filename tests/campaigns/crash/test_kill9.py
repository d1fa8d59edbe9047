"""A few cycles of the kill -9 campaign; ``make kill9`` runs as many as you like."""

import pytest

from nyala.clients.flight import server_wait
from tests.campaigns.crash.embedded import EmbeddedCampaign
from tests.campaigns.crash.kill9 import Campaign
from tests.campaigns.crash.openings import OpeningCampaign
from tests.campaigns.crash.orders import OrderCampaign
from tests.campaigns.crash.retries import RetryCampaign
from tests.campaigns.crash.scans import ScanCampaign
from tests.campaigns.crash.sessions import SessionCampaign
from tests.dose import dose
from tests.doubles.waiting import PATIENT


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for a server as long as it takes to start."""
    monkeypatch.setattr(server_wait, "_PAUSES", PATIENT)


def test_a_killed_server_has_all_that_it_acknowledged() -> None:
    campaign = Campaign(seed=0)
    cycles = dose(2, 8)
    campaign.run(cycles)
    assert campaign.cycles == cycles
    assert campaign.acknowledged > dose(10, 25), "too little was written to mean anything"
    assert campaign.rows_checked > dose(40, 100)


def test_clients_find_their_way_back_to_a_killed_server_and_write_everything_once(patience: None) -> None:
    campaign = RetryCampaign(seed=0)
    campaign.run(2)
    assert campaign.cycles == 2
    assert campaign.acknowledged > 20, "too little was written to mean anything"
    assert campaign.changes_checked > 100


def test_scans_go_on_through_kills_and_show_each_row_once(patience: None) -> None:
    campaign = ScanCampaign(seed=0)
    cycles = dose(1, 3)
    campaign.run(cycles)
    assert campaign.cycles == cycles
    assert campaign.reads > dose(2, 5), "too little was read to mean anything"


def test_writes_in_flight_on_sessions_are_applied_once(patience: None) -> None:
    campaign = SessionCampaign(seed=0)
    campaign.run(2)
    assert campaign.cycles == 2
    assert campaign.acknowledged > 50, "too little was written to mean anything"
    assert campaign.changes_checked > 100


def test_changes_in_random_orders_leave_what_the_sorted_log_leaves() -> None:
    campaign = OrderCampaign(seed=0)
    cycles = dose(20, 60)
    campaign.run(cycles)
    assert campaign.cycles == cycles
    assert campaign.kills > 0
    assert campaign.rows > 2 * cycles, "too few rows are left to mean anything"


def test_rows_written_one_by_one_by_the_killed_process_itself_are_there() -> None:
    campaign = EmbeddedCampaign(seed=0)
    campaign.run(2)
    assert campaign.cycles == 2
    assert campaign.acknowledged > 20, "too little was written to mean anything"


def test_a_store_with_its_own_options_opens_after_a_kill_with_all_single_rows() -> None:
    campaign = OpeningCampaign(seed=0, seconds_max=0.5)
    campaign.run(1)
    assert campaign.acknowledged > 20, "too little was written to mean anything"
