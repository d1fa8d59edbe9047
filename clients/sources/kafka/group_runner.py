"""Consumes topics as a member of a group: partitions come and go, and their positions are in the store.

A batch of messages is one commit, with the position of each of its partitions. The next batch is read while one is
committed. Whatever fails, the process leaves the group, reads the positions again, and joins it anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pydantic import BaseModel

from ....schemas.errors import StoreError, UnavailableError
from ...api.database import Database
from ..positions import State
from ..runner import PATIENCE_SECONDS, PAUSES_SECONDS, Progress, Report
from ..source import BatchLimits
from .applying import BatchApplier
from .cluster import Cluster, UnknownTopicError
from .formats.decoded import Format
from .membership import Member
from .partitions import LostPartitionError, Partitions
from .topic_table import TopicTable

_REPORT_SECONDS = 1.0
_TOPIC_SECONDS = 60.0
"""How long a topic that was there may be unknown: a broker that has just started may know none yet."""
_STEADY_SECONDS = 60.0
"""An attempt that lasted as long was a success, whatever ended it."""


class ConsumeResult(BaseModel):
    """What a run of a consumer of Kafka has done."""

    group: str
    messages: int = 0
    """Messages that came, the rejected ones included."""
    rejects: int = 0
    """Messages that could not be applied: the table ``nyala_rejects`` has them."""
    commits: int = 0
    rejoins: int = 0
    """How often the process joined its group anew, because another one was first, or something was out of reach."""
    positions: dict[str, int] = {}
    """The next offset of each partition of the topics, of all processes of the group."""


@dataclass(frozen=True)
class Choices:
    """What a run of a consumer of Kafka is to do."""

    start: str = "earliest"
    """Where partitions of a topic begin that the group has not consumed before: ``earliest`` or ``latest``."""
    accept_gap: bool = False
    """Go on at the oldest message where those of a position are gone."""
    until_caught_up: bool = False


class GroupRunner:
    """Consumes topics into tables of a database."""

    def __init__(
        self,
        database: Database,
        cluster: Cluster,
        group: str,
        topics: Mapping[str, tuple[TopicTable, Format]],
        choices: Choices,
        *,
        report: Report = lambda progress: None,
        limits: BatchLimits | None = None,
        rejects_max: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Raises InvalidArgumentError: several servers share the tables of the database."""
        self._cluster = cluster
        self._group = group
        self._topics = topics
        self._choices = choices
        self._report = report
        self._limits = limits or BatchLimits(rows=50_000)
        self._patience_seconds = patience_seconds
        self._stopped = threading.Event()
        self._partitions = Partitions(database, group)
        self._applier = BatchApplier(database, group, self._partitions, topics, rejects_max)
        self._has_reached = False
        self._failing: tuple[float, int] | None = None
        """Since when attempts fail, and how many commits there were then."""
        self._unknown_since: float | None = None
        """Since when a broker that answers does not know a topic."""
        self._attempts = 0
        self._reported_at = 0.0
        self._rejoins = 0
        self._partitions.check_one_server()

    def stop(self) -> None:
        """Let the run end after its current batch. Thread safe."""
        self._stopped.set()

    def run(self) -> ConsumeResult:
        """Consume until ``stop``, or until all messages are applied that there were at the start.

        Raises:
            NotFoundError: a topic or a table does not exist.
            ConflictError: messages after a position are gone.
            InvalidArgumentError: there are more rejects than allowed.
            UnavailableError: Kafka, the registry or the store could not be reached for a while.
        """
        while True:
            begun = time.monotonic()
            try:
                self._join()
                return self._result()
            except LostPartitionError:
                self._rejoins += 1
            except (UnavailableError, UnknownTopicError) as error:
                self._wait(error, time.monotonic() - begun)
                self._rejoins += 1
            if self._stopped.is_set():
                return self._result()

    def _join(self) -> None:
        """Be a member of the group until the end."""
        with ThreadPoolExecutor(1, "nyala-apply") as pool:
            member = Member(self._cluster, self._partitions, self._topics, self._choices.start, self._limits)
            try:
                member.join(pool, self._applier, self._choices.accept_gap)
                while not self._stopped.is_set():
                    self._has_reached |= member.poll()
                    self._tell(member)
                    if self._choices.until_caught_up and member.is_caught_up():
                        break
                member.settle()
                member.confirm()
            finally:
                member.leave()

    def _wait(self, error: UnavailableError | UnknownTopicError, seconds: float) -> None:
        """Wait before the next attempt, after one that took so long; not if no attempt has ever succeeded: then an
        address may be wrong."""
        now, commits = time.monotonic(), self._applier.counts.commits
        if self._failing is None or self._failing[1] != commits or seconds > _STEADY_SECONDS:
            self._failing, self._attempts, self._unknown_since = (now, commits), 0, None
        if not isinstance(error, UnknownTopicError):
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = now
        is_unknown = self._unknown_since is not None and now - self._unknown_since > _TOPIC_SECONDS
        if not self._has_reached or is_unknown or now - self._failing[0] > self._patience_seconds:
            raise error
        self._report(self._progress(note=f"waiting: {error.message}"))
        self._stopped.wait(PAUSES_SECONDS[min(self._attempts, len(PAUSES_SECONDS) - 1)])
        self._attempts += 1

    def _tell(self, member: Member) -> None:
        now = time.monotonic()
        if now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            messages, seconds = member.lag()
            self._report(self._progress(member.place, messages, seconds))

    def _progress(
        self, place: str = "", messages: int | None = None, seconds: float | None = None, note: str = ""
    ) -> Progress:
        counts = self._applier.counts
        return Progress(
            State.FOLLOWING,
            counts.messages,
            counts.commits,
            position=place,
            lag_seconds=seconds,
            lag_messages=messages,
            rejects=counts.rejects,
            note=note,
        )

    def _result(self) -> ConsumeResult:
        counts = self._applier.counts
        try:
            rows = self._partitions.read()
        except StoreError:
            rows = {}
        return ConsumeResult(
            group=self._group,
            messages=counts.messages,
            rejects=counts.rejects,
            commits=counts.commits,
            rejoins=self._rejoins,
            positions={
                str(partition): int(row.position or 0)
                for partition, row in sorted(rows.items())
                if partition.topic in self._topics
            },
        )
