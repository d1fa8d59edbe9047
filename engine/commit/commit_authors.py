"""CommitAuthors: by which operation, and by which user, the newest commits of a store were made.

The log has neither: a single row must not take more of it. So this memory is bounded, and only a file keeps it
(`authors_file`), which a crash may leave some seconds behind. What it lacks is NULL in ``commits``.

A commit is known by its timestamp and its table. One of another server, whose rows came here with a tablet, may have
the timestamp of one of another table here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...schemas.protocol.request import user
from ...schemas.rows.writer_name import login_of
from .numbered_writes import Ticket

COMMITS_KEPT = 65_536
"""The newest commits of a store whose authors are kept."""
USER_LENGTH_MAX = 512
"""Characters of a user's name that are kept: as many as one in a grant has."""

TRANSACTION = "transaction"
BULK_IMPORT = "bulk_import"


ANY_TABLE = 0
"""No table has this number."""


_TIMESTAMP_MAX = (1 << 63) - 1
"""No array has a later one. A clock may be so far ahead that a store makes one, and it can be closed all the same."""

Origin = tuple[str, str, int]
"""The operation of a commit, its user, and the only table whose rows it changes. The user is empty if nobody knows, the
table is ``ANY_TABLE`` if there may be others. (Each row makes one, and a class of its own would take four times as
long.)"""


def origin_of(operation: str, table_id: int, ticket: Ticket | None = None) -> Origin:
    """Return the origin of a commit, its operation and user, made for the request that this thread serves."""
    name = user()
    if not name and ticket is not None:  # a server in front of this one knows its users
        name = login_of(ticket.number.writer)
    return operation, name[:USER_LENGTH_MAX], table_id


@dataclass(frozen=True, slots=True, eq=False)
class Authored:
    """The authors of some commits: by which operation and user each was made."""

    timestamps: np.ndarray
    """int64, ascending."""
    numbers: np.ndarray
    """uint32: the place of each commit's origin in ``origins``."""
    origins: Sequence[Origin]

    def up_to(self, timestamp: int) -> Authored:
        """Return the origins of commits up to a timestamp."""
        count = int(np.searchsorted(self.timestamps, timestamp, "right"))
        return Authored(self.timestamps[:count], self.numbers[:count], self.origins)

    def followed_by(self, later: Authored, kept: int) -> Authored:
        """Return the origins of the newest ``kept`` commits of both, each origin once, and no others."""
        timestamps = np.concatenate([self.timestamps, later.timestamps])
        numbers = np.concatenate([self.numbers.astype(np.int64), later.numbers.astype(np.int64) + len(self.origins)])
        newest = np.argsort(timestamps, kind="stable")[-kept:]
        used, places = np.unique(numbers[newest], return_inverse=True)
        both = [*self.origins, *later.origins]
        distinct: dict[Origin, int] = {}
        of_used = [distinct.setdefault(both[number], len(distinct)) for number in used.tolist()]
        return Authored(timestamps[newest], np.array(of_used, np.uint32)[places], list(distinct))

    def at(self, timestamps: np.ndarray, table_id: int) -> list[Origin | None]:
        """Return the origin of the commit to a table at each timestamp (int64); None if it is not kept."""
        if not len(self.timestamps):
            return [None] * len(timestamps)
        places = np.minimum(np.searchsorted(self.timestamps, timestamps), len(self.timestamps) - 1)
        is_kept = self.timestamps[places] == timestamps
        numbers = np.where(is_kept, self.numbers[places].astype(np.int64), -1)
        of_table = [each if each[2] in (table_id, ANY_TABLE) else None for each in self.origins]
        return [of_table[number] if number >= 0 else None for number in numbers.tolist()]


NOTHING = Authored(np.empty(0, np.int64), np.empty(0, np.uint32), ())


class CommitAuthors:
    """The authors of the newest commits since a store was opened: their operations and users. Thread safe.

    A commit costs one append to a deque, which needs no lock: a single row would notice anything more.
    """

    def __init__(self, kept: int = COMMITS_KEPT) -> None:
        self._newest: deque[tuple[int, Origin]] = deque(maxlen=kept)
        self.add = self._newest.append
        """Keeps a timestamp and the origin of its commit, before anybody sees that."""

    @property
    def last(self) -> object:
        """What was added last; the next one is another object."""
        return self._newest[-1] if self._newest else None

    def newest(self) -> Authored:
        """Return what is kept."""
        kept = [each for each in self._newest.copy() if each[0] <= _TIMESTAMP_MAX]
        distinct: dict[Origin, int] = {}
        numbers = np.fromiter((distinct.setdefault(origin, len(distinct)) for _, origin in kept), np.uint32, len(kept))
        timestamps = np.fromiter((timestamp for timestamp, _ in kept), np.int64, len(kept))
        order = np.argsort(timestamps, kind="stable")
        return Authored(timestamps[order], numbers[order], list(distinct))
