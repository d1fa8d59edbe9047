"""MaintenanceVerbs: the methods of a store that do, show and pause its maintenance; see ``verbs``."""

from __future__ import annotations

from typing import Any, Protocol

from ..store.grants import Privilege
from ..store.maintenance import MaintenanceState, PauseMaintenance
from .command import MaintainBody
from .need import on_all_tables, on_table
from .verb import ANSWER, Kind, verb


class MaintenanceVerbs(Protocol):
    """The verbs of maintenance. Every method may raise ``StoreError``."""

    @verb(MaintainBody, dict, kind=Kind.TASK, needs=on_table(Privilege.MAINTAIN))
    def maintain(self, table: str, op: str) -> dict[str, Any]:
        """Do one kind of maintenance now, and return what was done. ``op`` is flush, flush_deltas, minor_compact,
        major_compact, compact or gc."""
        return ANSWER

    @verb(None, MaintenanceState, is_read=True, needs=on_all_tables(Privilege.MAINTAIN))
    def maintenance(self) -> MaintenanceState:
        """Return what maintenance is due, runs and was done, and what is paused."""
        return ANSWER

    @verb(PauseMaintenance, needs=on_all_tables(Privilege.MAINTAIN))
    def pause_maintenance(self, asked: PauseMaintenance) -> None:
        """Pause a kind of work, or all kinds, until some seconds have passed, or the store is closed; 0 seconds resume
        it. ``maintain`` still does it, and so does maintenance when writers wait for memory."""
        return ANSWER
