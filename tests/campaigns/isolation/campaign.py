"""Records what clients do and see, and looks for what their isolation level forbids.

    python tests/campaigns/isolation/campaign.py --way embedded --seconds 60 --seed 0

Lists and registers are written and read in all public ways, in several tables with a history each. The checker knows
nothing of the store: it judges by what the clients saw. The seed draws what they do; the order of threads is chance.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns import options as drawn
from tests.campaigns.isolation import tables
from tests.campaigns.isolation.checker import check
from tests.campaigns.isolation.clients import Client, Shared
from tests.campaigns.isolation.places import Place
from tests.campaigns.isolation.versions import Anomaly
from tests.campaigns.isolation.ways import WAYS, Promise
from tests.campaigns.options import PLAIN, Swarm

_CLIENTS = 3
"""Of each table."""
_ROUND_SECONDS = 30.0
"""Histories are judged after so long: a store begins anew then."""
_JOIN_SECONDS = 120.0
_SWITCH_SECONDS = 1e-4


@dataclass
class Result:
    """What one workload did, and what was seen."""

    promise: Promise
    transactions: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    anomalies: list[Anomaly] = field(default_factory=list)
    of_all_keys: list[Anomaly] = field(default_factory=list)
    """What whole transactions show if the level is that of each key."""

    @property
    def violations(self) -> list[Anomaly]:
        """The anomalies that its level forbids."""
        return self.promise.level.violations(self.anomalies)

    def __str__(self) -> str:
        allowed = Counter(each.nickname or each.name for each in self.anomalies if each not in self.violations)
        allowed += Counter(each.nickname or each.name for each in self.of_all_keys)
        names = ", ".join(f"{count} {name}" for name, count in allowed.items()) or "none"
        of_key = " of each key" if self.promise.is_of_each_key else ""
        return (
            f"{self.promise.workload.name:13} {self.promise.level.name}{of_key}: {self.transactions:,} transactions, "
            f"{len(self.violations)} violations; anomalies that it allows: {names}"
        )


class Campaign:
    """Rounds of clients on the tables of one way."""

    def __init__(self, way: str, seed: int, promises: tuple[Promise, ...] = (), swarm: Swarm = PLAIN) -> None:
        """Run some promises, or else all of the way."""
        self._swarm = swarm
        self._rounds_begun = 0
        self.way, self.seed = WAYS[way], seed
        self.results = [Result(promise) for promise in promises or self.way.promises]
        self.counts = Counter[str]()
        """What disturbed the stores."""
        self._random = Random(seed)
        self._failures: list[BaseException] = []

    def run(self, seconds: float) -> None:
        """Record and judge histories of so many seconds in all. Raises what fails, but no violation."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            self._rounds(seconds)
        finally:
            sys.setswitchinterval(interval)

    def _rounds(self, seconds: float) -> None:
        while seconds > 0:
            self._rounds_begun += 1
            with (
                self._swarm.round(self._rounds_begun),
                tempfile.TemporaryDirectory(prefix="nyala-isolation-") as folder,
                self.way.start(Path(folder), self._random.randrange(1 << 30)) as place,
            ):
                self._round(place, min(seconds, _ROUND_SECONDS))
            seconds -= _ROUND_SECONDS

    def _round(self, place: Place, seconds: float) -> None:
        database = place.connect(-1)
        since = database.now()
        stop = threading.Event()
        works: list[Callable[[threading.Event], None]] = [place.disturb]
        shared = [Shared(result.promise.workload) for result in self.results]
        for each in shared:
            load = each.workload
            tables.create(database, load.name, load.are_lists, load.has_rows)
            for _ in range(_CLIENTS):
                client = Client(place.connect(len(works)), each, len(works), self._random.randrange(1 << 30))
                works.append(client.run_until)
        threads = [threading.Thread(target=self._guarded, args=(work, stop), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        stop.wait(seconds)
        stop.set()
        for thread in threads:
            thread.join(_JOIN_SECONDS)
        if self._failures:
            raise self._failures[0]
        assert not any(thread.is_alive() for thread in threads), "a client hangs"
        self.counts += place.counts
        for result, each in zip(self.results, shared, strict=True):
            history = each.history(database, since)
            result.transactions += len(history.transactions)
            result.kinds += each.counts
            if result.promise.is_of_each_key:
                result.of_all_keys += check(history)
                history = history.by_key()
            result.anomalies += check(history)

    def _guarded(self, work: Callable[[threading.Event], None], stop: threading.Event) -> None:
        try:
            work(stop)
        except BaseException as error:  # the main thread raises it
            self._failures.append(error)
            stop.set()

    @property
    def violations(self) -> list[Anomaly]:
        """All that was forbidden."""
        return [each for result in self.results for each in result.violations]


def main() -> int:
    """Run the campaign that the command line asks for; return 1 if a level was violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=sorted(WAYS), default="embedded")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.way}", flush=True)
    campaign = Campaign(options.way, options.seed, swarm=drawn.swarm_of(WAYS[options.way].features, options))
    campaign.run(options.seconds)
    print(", ".join(f"{count:,} {what}" for what, count in sorted(campaign.counts.items())))
    for result in campaign.results:
        print(", ".join(f"{count:,} {kind}" for kind, count in sorted(result.kinds.items())))
    for anomaly in campaign.violations[:20]:
        print(anomaly)
    for result in campaign.results:
        print(result)
    print("no violation" if not campaign.violations else f"{len(campaign.violations)} violations")
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
