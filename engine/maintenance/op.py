"""MaintenanceOp: one kind of background work on one thing; the manager knows nothing else of the store."""

from typing import Protocol


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
