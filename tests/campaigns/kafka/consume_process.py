"""``nyala consume``, perhaps with a mistake that a campaign must see: ``consume_process.py MISTAKE ARGUMENTS...``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from nyala.__main__ import main
from nyala.clients.sources.kafka import membership, partitions
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


def confirm_first() -> None:
    """Commit the positions before the rows, in a commit of their own."""
    commit = Partitions.commit

    def first(self: Partitions, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        commit(self, StagedCommit(self._database._store), advances)
        time.sleep(0.3)  # a kill may come here
        if not staging.is_empty:
            staging.commit()

    Partitions.commit = first


def swap_blindly() -> None:
    """Write positions whatever they are by now, and late: others may own the partitions."""
    commit = Partitions.commit

    def late(self: Partitions, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        time.sleep(0.5)  # a process may be suspended here
        commit(self, staging, advances)

    Partitions.commit = late
    read = partitions.Operation

    class Blind:
        DELETE, INSERT = read.DELETE_IGNORE, read.UPSERT

    partitions.Operation = Blind  # pyright: ignore[reportAttributeAccessIssue]


MISTAKES: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "confirm-first": confirm_first,
    "swap-blindly": swap_blindly,
}

if __name__ == "__main__":
    tell_assignments()
    MISTAKES[sys.argv.pop(1)]()
    main()
