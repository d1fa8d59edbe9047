"""What a command left."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class Done:
    """What a command left: exit code, output and errors."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Done]
