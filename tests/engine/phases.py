"""Something that happens in the middle of background work, at a chosen call of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def at(monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool, work: Callable[[], Any]) -> None:
    """Do ``work`` once, right before or after the next call of ``phase``: an owner and the name of its function."""
    owner, name = phase
    call = getattr(owner, name)

    def with_work(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(owner, name, call)
        if before:
            work()
        result = call(*args, **kwargs)
        if not before:
            work()
        return result

    monkeypatch.setattr(owner, name, with_work)
