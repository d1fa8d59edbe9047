"""History: what the actors of a run called, and what they were answered, in the order of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .plan import Step

NEVER = 1 << 63


@dataclass
class Call:
    """One call. It began and ended at moments of one order; a call that a crash ended has no answer."""

    actor: str
    step: Step
    number: int
    began: int
    ended: int = NEVER
    moment: int | None = None
    """The timestamp that was read at, or that a condition named."""
    until: int | None = None
    answer: Any = None
    error: str | None = None
    """The code of the error that it raised."""
    began_seconds: float = 0.0
    ended_seconds: float = 0.0
    """The same moments in seconds, where answers may be so many behind."""

    def __str__(self) -> str:
        text = f"{self.actor} #{self.number} {self.step}"
        moments = f" since {self.moment}" if self.moment is not None else ""
        outcome = "no answer" if self.ended == NEVER else f"{self.error or self.answer}"
        return f"[{self.began}..{self.ended if self.ended != NEVER else ''}] {text}{moments} -> {outcome}"


@dataclass
class History:
    """All calls of a run, its lives one after the other."""

    calls: list[Call] = field(default_factory=list)
    time: int = 0
    moments: list[int] = field(default_factory=list)
    """Timestamps that can be read at."""
    tables: list[str] = field(default_factory=list)
    """Tables that were made meanwhile."""
    seconds: Callable[[], float] = lambda: 0.0
    """Tells the time."""
    first_number: int = 0
    """Of the calls; above those of a history that this one goes on with."""

    def begin(self, actor: str, step: Step) -> Call:
        self.time += 1
        call = Call(actor, step, self.first_number + len(self.calls), self.time, began_seconds=self.seconds())
        self.calls.append(call)
        return call

    def end(self, call: Call) -> None:
        self.time += 1
        call.ended, call.ended_seconds = self.time, self.seconds()
