"""TabletChange: what a commit changes in one tablet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..record.change import Change
from .tablet import Tablet


@dataclass(frozen=True, slots=True, eq=False)
class TabletChange:
    """A change of one tablet to log and apply, with the locations of its rows."""

    tablet: Tablet
    change: Change
    locations: np.ndarray
    is_mark: bool = False
    """Whether it only leaves the ordering values of deletes behind, which no quota refuses."""
