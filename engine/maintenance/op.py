"""MaintenanceOp: one kind of background work on one thing; the manager knows nothing else of the store."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...schemas.service import MaintenanceKind


class MaintenanceOp(Protocol):
    """Work that may become due."""

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


@dataclass(frozen=True, slots=True)
class TabletOp:
    """One kind of work on one tablet."""

    name: str
    score: Callable[[], float]
    perform: Callable[[], Any]
    kind: MaintenanceKind | None = None
    """As which it is counted, with the report that ``perform`` returns; None: it is not counted."""
