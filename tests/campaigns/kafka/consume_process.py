"""``nyala consume``, perhaps with a mistake that a campaign must see: ``consume_process.py MISTAKE ARGUMENTS...``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from nyala.__main__ import main
from nyala.clients.sources.kafka import membership
from nyala.clients.sources.kafka.partitions import Advance, Partitions
from nyala.clients.sources.staging import StagedCommit

ASSIGNED = "assigned:"
"""How a line of the log begins that tells of new partitions."""


def tell_assignments() -> None:
    """Write a line whenever the group gives partitions to the process."""
    assign = membership.Member._on_assign

    def told(self: membership.Member, consumer: Any, given: Any) -> None:
        print(ASSIGNED, len(given), flush=True)
        assign(self, consumer, given)

    membership.Member._on_assign = told


def lose() -> None:
    """Commit the positions of the second batch of a process without its rows, as if they were commits of their own."""
    commit, batches = Partitions.commit, []

    def losing(self: Partitions, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        batches.append(staging.rows)
        commit(self, StagedCommit(self._database._store) if len(batches) == 2 else staging, advances)

    Partitions.commit = losing


MISTAKES: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "lose": lose,
}

if __name__ == "__main__":
    tell_assignments()
    MISTAKES[sys.argv.pop(1)]()
    main()
