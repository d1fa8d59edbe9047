"""TabletChange: what a commit changes in one tablet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...schemas.errors import InvalidArgumentError
from ..record.change import Change, ChangeKind
from ..rowset.memrowset import NEW_ROWS_MAX
from .tablet import Tablet


@dataclass(frozen=True, slots=True, eq=False)
class TabletChange:
    """A change of one tablet to log and apply, with the locations of its rows."""

    tablet: Tablet
    change: Change
    locations: np.ndarray
    is_mark: bool = False
    """Whether it only leaves the ordering values of deletes behind, which no quota refuses."""


def check_new_rows(changes: Iterable[TabletChange]) -> None:
    """Check that a commit does not bring more new rows to the memory of a tablet than have numbers there.

    Raises:
        InvalidArgumentError: it does.
    """
    new: Counter[int] = Counter()
    for each in changes:
        if each.change.kind is ChangeKind.STORE:
            new[each.tablet.tablet_id] += int(np.count_nonzero(each.locations < 0))
    if (most := max(new.values(), default=0)) > NEW_ROWS_MAX:
        raise InvalidArgumentError(
            f"a commit of {most:,} new rows of one tablet is too large: at most {NEW_ROWS_MAX:,} are possible; "
            "split it into several"
        )
