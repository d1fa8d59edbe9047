"""Real servers of a store in a bucket fail in every way, and clients go on: nothing is lost, doubled or stale.

    python tests/campaigns/failover/campaign.py --minutes 10 --seed 0 --way directory
    python tests/campaigns/failover/campaign.py --minutes 10 --seed 0 --way moto --lease 5
    python tests/campaigns/failover/campaign.py --minutes 10 --seed 0 --way ceph
    python tests/campaigns/failover/campaign.py --minutes 30 --seed 0 --only kill

Three servers of one store, of which one has it; writers, readers, a follower of the change feed, maintenance and a
sweep use it from this process. The seed draws the faults (``faults.py``): kill -9, SIGSTOP at any moment and at named
points, partitions, planned stops; the clocks of the servers are wrong by an hour. With ``moto`` and ``ceph``, the
network between servers and bucket lies, and the OSD of Ceph is killed. Each store ends with a check of everything
(``checks.py``).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns import options as drawn
from tests.campaigns.failover.checks import check
from tests.campaigns.failover.cluster import Cluster
from tests.campaigns.failover.faults import FAULTS, Fault, lose_bucket
from tests.campaigns.failover.places import ENVIRONMENT, PLACES, CephPlace, Place
from tests.campaigns.failover.planted import PLANTED

FAULTS_A_STORE = 25
"""After so many the store is checked and left behind, and a new one begun."""
_TELL_SECONDS = 60.0


@dataclass
class Campaign:
    """Counts over all stores."""

    seed: int
    lease_seconds: float = 2.0
    faults: dict[Fault, int] = field(default_factory=lambda: FAULTS)
    planted: str = ""
    servers: int = 3
    swarm: drawn.Swarm = drawn.PLAIN
    calm: float = 1
    """So many times longer are the pauses of clients: several campaigns at once then have processors enough."""
    moments: int = 20_000
    """How often each store is read at a drawn moment when all is over."""
    done: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._began = self._told = time.monotonic()

    def run(self, place: Place, folder: Path, faults: int | None = None, minutes: float = 1e9) -> None:
        """Do so many faults, or as many as fit into the time."""
        os.environ.update(ENVIRONMENT)
        left, end = faults or 1 << 30, time.monotonic() + 60 * minutes
        store = 0
        while left > 0 and time.monotonic() < end:
            store += 1
            some = min(FAULTS_A_STORE, left)
            with self.swarm.round(store):
                self._one_store(place, f"store-{store}", folder / f"store-{store}", some, end)
            left -= some

    def _one_store(self, place: Place, root: str, folder: Path, faults: int, end: float) -> None:
        cluster = Cluster(place, root, folder, self._random, self.lease_seconds, self.servers, self.planted, self.calm)
        try:
            cluster.start()
            for _ in range(faults):
                cluster.wait_until_ready()
                self._one_fault(cluster)
                if time.monotonic() > end:
                    break
            cluster.wait_until_ready()
            cluster.end()
        except BaseException:
            with suppress(Exception):
                cluster.close()
            raise
        checked = check(cluster, folder / "cache", self.moments)
        self._count(cluster)  # the check reads all snapshots that were kept once more
        self.counts += Counter(vars(checked)) + Counter(stores=1)
        self._tell()

    def _one_fault(self, cluster: Cluster) -> None:
        fault = self._random.choices(list(self.faults), list(self.faults.values()))[0]
        outcome = fault(cluster)
        cluster.raise_failures()
        kind = outcome.what.partition(" (")[0]
        self.done[kind] += 1
        self.counts[outcome.what] += outcome.what != kind
        if outcome.seconds is not None:
            self.seconds.setdefault(kind, []).append(outcome.seconds)
        if time.monotonic() > self._told + _TELL_SECONDS:
            self._tell(cluster)

    def _count(self, cluster: Cluster) -> None:
        self.counts += _counts_of(cluster)

    def _tell(self, cluster: Cluster | None = None) -> None:
        """Print what was done up to now."""
        self._told = time.monotonic()
        counts = self.counts + (_counts_of(cluster) if cluster else Counter())
        print(f"{self._told - self._began:6.0f} s: {self.summary(counts)}", flush=True)

    def summary(self, counts: Counter[str] | None = None) -> str:
        """Return all figures in one line."""
        counts = counts or self.counts
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        seconds = "; ".join(f"{kind} {_spread(times)}" for kind, times in sorted(self.seconds.items()))
        return (
            f"{self.done.total()} faults ({done}); acknowledged {counts['writes']}, 0 lost; reads of now "
            f"{counts['reads']}, 0 stale; snapshots read again {counts['there'] + counts['elsewhere']}, of another "
            f"process {counts['elsewhere']}, single rows of them {counts['points']}, rows at drawn moments "
            f"{counts['moments']}, 0 changed; stores checked "
            f"{counts['stores']}: {counts['claims']} claims, {counts['changes']} changes, {counts['swept']} swept, "
            "0 missing, 0 leaked; "
            f"until a write was acknowledged elsewhere (median, maximum): {seconds}"
        )


def _counts_of(cluster: Cluster) -> Counter[str]:
    known: dict[str, Any] = {"writes": cluster.answers.count, "reads": cluster.registers.checked}
    return Counter(known) + cluster.snapshots.counts


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):.1f}, {max(times):.1f} s of {len(times)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--way", choices=sorted(PLACES), default="directory")
    parser.add_argument("--lease", type=float, default=5.0, help="lease_seconds of the servers")
    parser.add_argument("--planted", choices=sorted(PLANTED), default="", help="a mistake that it must find")
    parser.add_argument("--only", choices=sorted(fault.__name__ for fault in FAULTS), help="this fault again and again")
    parser.add_argument("--calm", type=float, default=1.0, help="pauses of clients, beside those of a full load")
    parser.add_argument("--moments", type=int, default=20_000, help="reads of each store at drawn moments, at its end")
    drawn.add_to(parser)
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.way}, a lease of {options.lease} s", flush=True)
    swarm = drawn.swarm_of(drawn.IN_BUCKET, options)
    how = {"planted": options.planted, "swarm": swarm, "calm": options.calm, "moments": options.moments}
    campaign = Campaign(options.seed, options.lease, **how)
    if options.only:
        campaign.faults = {fault: 1 for fault in FAULTS if fault.__name__ == options.only}
    with tempfile.TemporaryDirectory(prefix="nyala-failover-") as name:
        folder = Path(name)
        with PLACES[options.way](folder / "bucket") as place:
            if isinstance(place, CephPlace) and not options.only:
                campaign.faults = {**FAULTS, lose_bucket(place): 5}
            campaign.run(place, folder, minutes=options.minutes)
    points = ", ".join(f"{name} {count}" for name, count in sorted(campaign.counts.items()) if "(" in name)
    print(f"done: {campaign.summary()}; points: {points}", flush=True)


if __name__ == "__main__":
    main()
