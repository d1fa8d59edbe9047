"""A few faults of the campaign of moves; ``make moves WAY=directory`` and ``WAY=moto`` make as many as you like."""

from pathlib import Path
from random import Random

from tests.campaigns.failover.places import PLACES
from tests.clients.cluster.failing_moves import run_one, told
from tests.clients.cluster.move_faults import at_hand_over, kill


def test_nothing_is_lost_or_doubled_when_servers_fail_while_tablets_move(tmp_path: Path) -> None:
    with PLACES["directory"](tmp_path / "bucket") as place:
        counts = run_one(place, tmp_path / "stores", Random(3), 1.5, [[kill, at_hand_over]])
    print(told(counts))
    assert counts["rounds"] == counts["pairs of stores"] == 1
    phases = 3  # before, between and after the faults: each ends once somebody has written, read and moved a tablet
    assert min(counts["moves"], counts["writes"], counts["scans"]) >= phases, "too little to mean anything"
