"""A write between its application and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ...schemas.rows.write import Durability, WriteResult
from ...schemas.table.table import TableSchema
from ..commit.commit_log import Commit, CommitLog
from ..commit.numbered_writes import Answered
from ..tablet.tablet import Tablet
from .checked_batch import CheckedBatch
from .write_result import answer


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """A write to a table that is applied and not acknowledged. It becomes visible whether or not ``result`` is
    called."""

    schema: TableSchema
    batch: pa.RecordBatch
    checked: CheckedBatch
    status: np.ndarray
    rejected: bool
    commit: Commit | None
    log: CommitLog
    durability: Durability
    tablets: tuple[Tablet, ...]
    """The tablets that the batch touched."""
    stored: int | None = None
    """How many of its keys are new; None if nobody asked."""
    reasons: Mapping[int, str] = field(default_factory=dict[int, str])
    """Why rows are refused because of what the store computes for them."""

    def result(self) -> WriteResult:
        """Return the answer once the write is durable and visible.

        Raises:
            UnavailableError: the log failed; whether the write survives is known after a restart.
        """
        timestamp = self.log.settle() if self.commit is None else self.commit.timestamp
        if self.commit is not None:
            self.log.acknowledge(self.commit, self.durability)
        return self.said(timestamp)

    def said(self, timestamp: int = 0) -> WriteResult:
        """Return the answer, without a wait."""
        return answer(
            self.batch,
            self.schema,
            self.checked,
            self.status,
            timestamp,
            self.durability,
            self.rejected,
            self.stored,
            self.reasons,
        )

    def committed(self, commit: Commit | None) -> PendingWrite:
        """Return the write with its commit; None if nothing was logged."""
        return replace(self, commit=commit)


@dataclass(frozen=True, slots=True)
class RepeatedWrite:
    """A numbered write to a table that was applied before: its answer is known, though it may not be durable yet."""

    known: Answered
    log: CommitLog
    durability: Durability

    def result(self) -> WriteResult:
        """Return the first answer once the write is durable and visible. Raises as ``PendingWrite.result``."""
        self.log.acknowledge(Commit(self.known.timestamp, self.known.lsn), self.durability)
        return self.known.result(self.durability)
