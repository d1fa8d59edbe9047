"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENT = (0.2,) * 600
"""Pauses of a client whose server is started again, however slow the machine is: for ``server_wait._PAUSES``."""


def until(is_true: Callable[[], object], seconds: float = 30) -> None:
    """Return once ``is_true`` returns something true; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"it did not come true within {seconds} seconds"
        time.sleep(0.005)
