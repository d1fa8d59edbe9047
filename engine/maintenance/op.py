"""MaintenanceOp: one kind of background work on one thing; the manager knows nothing else of the store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ...schemas.errors import InvalidArgumentError, StoreError
from ...schemas.protocol.service import MaintenanceKind

URGENT_SCORE = 1e6
"""Of work that frees memory while writers wait for it: above all other work, and no pause holds it up."""


class MaintenanceOp(Protocol):
    """Background work of maintenance that may become due."""

    @property
    def name(self) -> str:
        """What it does and to what, for logs and statistics."""
        ...

    def score(self) -> float:
        """Return the priority of the work now; 0 means nothing to do. Cheap: called often, under no lock."""
        ...

    def perform(self) -> object:
        """Do the work; the manager ignores the result. May raise ``StoreError``; its score is then asked again."""
        ...


@contextmanager
def followed_by(freed: Callable[[], object]) -> Iterator[None]:
    """Call ``freed`` after the flushes of maintenance, also of those that were done before one failed."""
    try:
        yield
    except BaseException:
        with suppress(StoreError):
            freed()
        raise
    freed()


def about(operation: MaintenanceOp) -> tuple[str | None, str]:
    """Return the kind of maintenance that an operation does, and the table's name, as far as they are known."""
    kind = getattr(operation, "kind", None)
    return None if kind is None else str(kind), getattr(operation, "table", "")


def kind_of(name: str) -> MaintenanceKind:
    """Return the kind of maintenance of a name. Raises InvalidArgumentError: there is none."""
    if name not in set(MaintenanceKind):
        raise InvalidArgumentError(f"unknown maintenance operation {name!r}; known: {', '.join(MaintenanceKind)}")
    return MaintenanceKind(name)


@dataclass(frozen=True, slots=True)
class TabletOp:
    """One kind of maintenance on one tablet."""

    name: str
    score: Callable[[], float]
    perform: Callable[[], Any]
    kind: MaintenanceKind | None = None
    """As which it is counted, with the report that ``perform`` returns; None: it is not counted."""
    table: str = ""
    """The name of the tablet's table; empty: it is not known."""
