"""The named points of a move in a server: before and after each of its verbs, beside those of the bucket during one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from nyala.engine.moving.arrivals import Arrivals
from nyala.engine.moving.departures import Departures
from nyala.engine.moving.moves import Mover
from tests.campaigns.failover.points import UNDER_WAY, reach

_VERBS: dict[str, tuple[type, str]] = {
    "begin": (Mover, "begin"),
    "receive": (Mover, "receive"),
    "fetch": (Arrivals, "copy"),
    "prepare": (Mover, "prepare"),
    "hand over": (Departures, "hand_over"),
    "take over": (Mover, "take_over"),
    "forget": (Departures, "forget"),
}
_COMMITTING = ("prepare", "hand over", "take over", "forget")
STEPS = (
    *_VERBS,
    "copy of fetch",
    *(f"{step} of {verb}" for verb in _COMMITTING for step in ("manifest", "commit")),
)
"""A commit is the slot that makes a step of the move count."""
MOVE_POINTS = tuple(f"{side} {step}" for step in STEPS for side in ("before", "after"))
HAND_OVER_POINTS = tuple(point for point in MOVE_POINTS if point.endswith("hand over"))


def with_move_points(control: Path) -> None:
    """Have this process stop or be killed at the points of its moves, as ``points.arm`` says."""
    for verb, (owner, name) in _VERBS.items():
        setattr(owner, name, _pointed(control, verb, getattr(owner, name)))


def _pointed(control: Path, verb: str, done: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(done)
    def pointed(*arguments: Any) -> Any:
        UNDER_WAY[verb] += 1
        try:
            reach(control, f"before {verb}")
            answer = done(*arguments)
            reach(control, f"after {verb}")
            return answer
        finally:
            UNDER_WAY[verb] -= 1

    return pointed
