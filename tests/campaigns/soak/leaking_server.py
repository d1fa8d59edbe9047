"""The command ``nyala`` with a server that keeps something of every scan: the soak must see it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from nyala.__main__ import main
from nyala.flight_server.handlers import get

_BYTES = 8 << 20
"""Enough to be seen in seconds, while the server still warms up."""
_kept: list[Any] = []


def _leak() -> None:
    stream = get.stream

    def leaking(*arguments: Any) -> Any:
        _kept.append((os.dup(2), bytearray(os.urandom(1)) * _BYTES))
        return stream(*arguments)

    get.stream = leaking


if __name__ == "__main__":
    _leak()
    main()
