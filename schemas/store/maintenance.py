"""The state of a store's maintenance: what is due, what runs, what was done, and which kinds of work are paused."""

from __future__ import annotations

from pydantic import Field

from ..message import Message, new_dict, new_list

PAUSE_SECONDS_MAX = 86_400


class PauseMaintenance(Message, frozen=True, extra="forbid"):
    """The body of ``pause_maintenance``: which work on its files a store leaves for a while."""

    op: str | None = None
    """The kind of work, as for ``maintain``; None: all kinds."""
    seconds: int = Field(ge=0, le=PAUSE_SECONDS_MAX)
    """From now; 0 resumes."""


class DueWork(Message, frozen=True):
    """In the state of a store's maintenance: work that is worth doing."""

    name: str
    """What it does and to what."""
    op: str | None = None
    """Its kind, as for ``maintain``; None: it can be neither asked for nor paused."""
    table: str = ""
    """Empty: it is about no single table."""
    score: float = 0.0
    """The greatest is done next."""


class DoneWork(Message, frozen=True):
    """In the state of a store's maintenance: work that was done, or failed."""

    name: str
    op: str | None = None
    table: str = ""
    ended: float
    """When, in seconds since 1970."""
    seconds: float
    error: str = ""
    """Its code; empty: it succeeded."""


class FailingWork(Message, frozen=True):
    """In the state of a store's maintenance: work that failed when it was last tried. It rests until the next try, and
    holds up no other work."""

    name: str
    op: str | None = None
    table: str = ""
    error: str
    """The code of the last failure, and what it said."""
    failures: int
    """How often it failed in succession."""
    since: float
    """When it failed first, in seconds since 1970."""
    next_try: float
    """When it is tried again, likewise."""


class MaintenanceState(Message, frozen=True):
    """The state of a store's maintenance: the answer of ``maintenance``."""

    is_on: bool = True
    """Whether due work is done without being asked for."""
    paused: dict[str, float] = Field(default_factory=new_dict)
    """Kinds of work that are only done when asked for, or when writers wait for memory; until when, in seconds since
    1970."""
    running: list[str] = Field(default_factory=new_list)
    due: list[DueWork] = Field(default_factory=new_list)
    """As of the last look, the greatest score first; of much only the first. Nobody looks while maintenance is off."""
    due_count: int = 0
    done: list[DoneWork] = Field(default_factory=new_list)
    """The last, the newest first."""
    failing: list[FailingWork] = Field(default_factory=new_list)
    """The longest failing first."""
