"""MaintenanceOp: one kind of background work on one thing; all that the manager knows of the store."""

from typing import Protocol


class MaintenanceOp(Protocol):
    """Work that waits to be worth doing."""

    @property
    def name(self) -> str:
        """What it does and to what, for logs and statistics."""
        ...

    def score(self) -> float:
        """Return how much it is worth doing now; 0 means nothing to do. Cheap: asked often, under no lock."""
        ...

    def perform(self) -> object:
        """Do it; what it returns is for others. May raise ``StoreError``; it is then asked for its score again."""
        ...
