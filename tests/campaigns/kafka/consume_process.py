"""``nyala consume``, perhaps with a mistake that a campaign must see: ``consume_process.py MISTAKE ARGUMENTS...``.

Its output has a line for each event that the campaign counts: partitions that come, commits that the store refuses
since another process was first, and answers of commits that never come.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from nyala.__main__ import main
from nyala.clients.sources.kafka import group_runner, membership
from nyala.clients.sources.kafka.partitions import Advance, LostPartitionError, Partitions
from nyala.clients.sources.source import BatchLimits
from nyala.clients.sources.staging import StagedCommit
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.transaction import TransactionResult
from tests.campaigns.kafka.planted import MISTAKES

ASSIGNED, FENCED, UNANSWERED = "assigned:", "fenced:", "unanswered:"
"""How the lines of the log begin that tell of new partitions, of commits that came too late, and of lost answers."""
_BATCH_ROWS = 1_000
_UNANSWERED = 0.03
"""So many of the commits are applied, and their answers do not arrive."""


def log_events() -> None:
    """Write a line whenever the group gives partitions to the process, and whenever the store refuses it."""
    assign, commit = membership.Member._on_assign, Partitions.commit

    def assigned(self: membership.Member, consumer: Any, given: Any) -> None:
        print(ASSIGNED, time.time(), *(each.partition for each in given), flush=True)
        assign(self, consumer, given)

    def committed(self: Partitions, staging: StagedCommit, advances: Iterable[Advance]) -> None:
        try:
            commit(self, staging, advances)
        except LostPartitionError:
            print(FENCED, flush=True)
            raise

    membership.Member._on_assign = assigned
    Partitions.commit = committed


def lose_answers() -> None:
    """Let the answers of some commits never arrive."""
    commit, random = StagedCommit.commit, Random()

    def unanswered(self: StagedCommit) -> TransactionResult:
        result = commit(self)
        if random.random() < _UNANSWERED:
            print(UNANSWERED, flush=True)
            raise UnavailableError("the answer was lost on its way")
        return result

    StagedCommit.commit = unanswered


def commit_often() -> None:
    """Take few messages in a commit: so many commits are there to be met by a kill."""
    group_runner.BatchLimits = lambda rows: BatchLimits(rows=min(rows, _BATCH_ROWS))


if __name__ == "__main__":
    MISTAKES[sys.argv.pop(1)]()
    log_events()
    lose_answers()
    commit_often()
    main()
