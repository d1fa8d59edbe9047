"""How much a test does: a small dose by day, which ``make test`` runs, and a long one by night (``make night``)."""

import os
from typing import TypeVar

IS_NIGHT = bool(os.environ.get("NIGHT"))
"""Whether the long doses run."""
_Dose = TypeVar("_Dose")


def dose(day: _Dose, night: _Dose) -> _Dose:
    """Return one of two doses.

    >>> dose(5, 5)
    5
    """
    return night if IS_NIGHT else day
