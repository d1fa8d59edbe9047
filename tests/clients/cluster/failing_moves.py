"""The campaign of moves between servers in processes of their own, which fail: rounds of faults, each with a check."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from nyala.clients.flight.store import FlightStore
from tests.campaigns.failover.places import ENVIRONMENT, PLACES, Place
from tests.clients.cluster.move_faults import ASKED, FAULTS, Fault, check_asked, make_asked
from tests.clients.cluster.moves_campaign import LOST, Campaign
from tests.clients.cluster.served_names import STUCK_SECONDS, Served

FAULTS_A_ROUND = 5
ROUNDS_A_STORE = 4
"""Then the stores are checked and left behind."""


def run_served(
    seconds: float, seed: int, folder: Path, way: str, lease_seconds: float, planted: str, only: str
) -> Counter[str]:
    """Run rounds for so long, if ``only`` is not empty of one fault; print the counts after each pair of stores."""
    random, counts = Random(seed), Counter[str]()
    some = {fault: weight for fault, weight in FAULTS.items() if only in ("", fault.__name__)}
    began = time.monotonic()
    with PLACES[way](folder / "bucket") as place:
        while time.monotonic() < began + seconds:
            here = folder / str(counts["pairs of stores"])
            weights = list(some.values())
            rounds = [random.choices(list(some), weights, k=FAULTS_A_ROUND) for _ in range(ROUNDS_A_STORE)]
            counts += run_one(place, here, random, lease_seconds, rounds, planted, began + seconds)
            print(f"{time.monotonic() - began:6.0f} s: {told(counts)}", flush=True)
    return counts


def run_one(
    place: Place,
    folder: Path,
    random: Random,
    lease_seconds: float,
    rounds: Sequence[Sequence[Fault]],
    planted: str = "",
    end: float = float("inf"),
) -> Counter[str]:
    """Run rounds on new stores, the last fault before ``end``; check them, and return what was counted."""
    os.environ.update(ENVIRONMENT)
    folder.mkdir()
    with Served(place, folder.name, folder, random, lease_seconds, planted=planted) as served:
        served.wait_until_ready()
        campaign = Campaign(served, random.randrange(1 << 30), served.names, is_failing=True)
        make_asked(campaign.db)
        for faults in rounds:
            campaign.run(lambda faults=faults: _fail(campaign, served, faults, end))
            served.wait_until_ready()
            _check_servers(campaign, served)
            campaign.counts["rounds"] += 1
            if time.monotonic() > end:
                break
    served.raise_problems()
    campaign.counts["objects swept"] += served.check_stores()
    campaign.counts["pairs of stores"] += 1
    return campaign.counts


def told(counts: Counter[str]) -> str:
    """Return counts in one line."""
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))


def _fail(campaign: Campaign, served: Served, faults: Sequence[Fault], end: float) -> None:
    """Do faults, each once clients write and move again; leave the servers whole."""
    try:
        for fault in faults:
            began = time.monotonic()
            _wait_for_clients(campaign, served)
            waited = time.monotonic() - began
            what = fault(served)
            campaign.counts[what] += 1
            print(f"  after {waited:.1f} s {what}: {time.monotonic() - began - waited:.1f} s", flush=True)
            if time.monotonic() > end:
                break
        _wait_for_clients(campaign, served)
    finally:
        served.heal()


def _wait_for_clients(campaign: Campaign, served: Served) -> None:
    """Return when somebody has written, read and moved a tablet, and all processes are there."""
    before = dict(campaign.counts)

    def lacking() -> list[str]:
        campaign.raise_failure()
        return [what for what in ("writes", "scans", "moves") if campaign.counts[what] <= before.get(what, 0)]

    served.wait(lambda: not lacking(), lambda: f"no more {' nor '.join(lacking())}")
    served.wait_until_ready()


def _check_servers(campaign: Campaign, served: Served) -> None:
    """Every tablet moves to one server, and is balanced again; nothing is left of other moves, and no tablet is on two
    servers, or on none."""
    end, first = time.monotonic() + STUCK_SECONDS, served.names[0]
    for table in ("t", ASKED):
        while away := [place for place in campaign.db.table(table).tablets() if place.server != first]:
            try:
                campaign.db.move_tablet(table, away[0].tablet, first, server=away[0].server)
            except LOST as error:
                assert time.monotonic() < end, f"a tablet cannot move: {error}"
    for place in campaign.db.table(ASKED).tablets():  # ends what is left of moves that nobody drives any more
        campaign.db.move_tablet(ASKED, place.tablet, served.names[1], server=first)
    _nyala("cluster", "balance", "--apply", "--placement", str(served.file))
    owners = Counter(place.server for place in campaign.table.tablets())
    assert len(owners) == len(served.names) and owners.total() == 6, owners
    check_asked(campaign.db)
    _nyala("cluster", "check", "--placement", str(served.file))
    for name in served.names:
        store = FlightStore(served.holder(name).location)
        found = [store.moves(table) for table in ("t", ASKED)]
        store.close()
        assert not any(each.arriving or each.left for each in found), found
    campaign.check_rows()


def _nyala(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "nyala", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"nyala {' '.join(words)}:\n{done.stdout}{done.stderr}"
