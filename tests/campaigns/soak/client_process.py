"""Some clients of a soak, each on a thread; ``soak.py`` starts this and talks with it in lines.

It reads its task as JSON, and then ``go``, ``stop`` and ``check``. It prints JSON: that all clients are ready; every
second what was measured; after ``stop`` that all have ended; after ``check`` how many rows each has compared. The first
failure of a client is told in full, and ends that client.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns.soak.clients import (
    Access,
    Aggregator,
    Client,
    Connector,
    Follower,
    FullScanner,
    Getter,
    Loader,
    SmallWriter,
    TinyScanner,
    Transactor,
)
from tests.campaigns.soak.misbehaving import Misbehaver

KINDS: tuple[type[Client], ...] = (
    *(SmallWriter, Getter, Loader, Misbehaver, Follower, TinyScanner, FullScanner, Aggregator),
    *(Transactor, Connector, SmallWriter, Misbehaver, Getter, TinyScanner, Follower, SmallWriter),
)
"""What each of sixteen clients is; further ones begin anew."""
_REPORT_SECONDS = 1.0


class Runner:
    """One client on its thread."""

    def __init__(self, access: Access, number: int, seed: int) -> None:
        self._random = Random(f"{seed} {number}")
        kind = KINDS[number % len(KINDS)]
        self.name = f"client {number} ({kind.__name__})"
        self.client = kind(access, number, self._random)
        self.failure = ""
        self.thread = threading.Thread(target=self._run, name=self.name)

    def run_until(self, stop: threading.Event) -> None:
        """Begin; one step follows the other until ``stop`` is set."""
        self._stop = stop
        self.thread.start()

    def check(self) -> int:
        """Compare what the table holds with what the client knows; it must have ended."""
        try:
            return 0 if self.failure else self.client.check()
        except BaseException:
            self.failure = traceback.format_exc()
            return 0

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._random.expovariate(1 / self.client.pause_seconds)):
                self.client.step()
        except BaseException:  # it is told, and fails the soak
            self.failure = traceback.format_exc()


def main() -> None:
    """See the module."""
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    access, seed = Access(**asked["access"]), asked["seed"]
    runners = [Runner(access, number, seed) for number in asked["clients"]]
    stop = threading.Event()
    _say({"state": "ready"})
    assert sys.stdin.readline() == "go\n"
    for each in runners:
        each.run_until(stop)
    reporting = threading.Thread(target=_report_until, args=(runners, stop))
    reporting.start()
    assert sys.stdin.readline() == "stop\n"
    stop.set()
    for thread in (reporting, *(each.thread for each in runners)):
        thread.join()
    _report(runners)
    _say({"state": "ended"})
    assert sys.stdin.readline() == "check\n"
    checked = {each.name: each.check() for each in runners}
    _report(runners)
    _say({"checked": checked})
    for each in runners:
        each.client.close()


def _report_until(runners: list[Runner], stop: threading.Event) -> None:
    while not stop.wait(_REPORT_SECONDS):
        _report(runners)


def _report(runners: list[Runner]) -> None:
    found: list[tuple[str, float, float]] = []
    notes: list[str] = []
    for each in runners:
        report = each.client.report
        count, told = len(report.latencies), len(report.notes)
        found += report.latencies[:count]
        notes += report.notes[:told]
        del report.latencies[:count], report.notes[:told]
    rounded = [(verb, round(ended, 3), round(seconds, 6)) for verb, ended, seconds in found]
    failures = {each.name: each.failure for each in runners if each.failure}
    _say({"latencies": rounded, "notes": notes, "failures": failures, "at": time.monotonic()})


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
