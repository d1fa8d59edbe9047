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

    @verb(
        'Do one kind of maintenance now: {"table",'
        '"op":"flush"|"flush_deltas"|"minor_compact"|"major_compact"|"gc"|"compact"}. Answers what was done.',
        MaintainBody,
        dict,
        kind=Kind.TASK,
        needs=on_table(Privilege.MAINTAIN),
    )
    def maintain(self, table: str, op: str) -> dict[str, Any]:
        """Run one maintenance operation now; see ``MaintenanceKind``. Returns what was done."""
        return ANSWER

    @verb(
        'What maintenance is due, runs and was done: no body. Answers {"is_on","paused":{op:until},"running":[...],'
        '"due":[{"name","op","table","score"}],"due_count","done":[{"name","op","table","ended","seconds",'
        '"error"}]}.',
        None,
        MaintenanceState,
        is_read=True,
        needs=on_all_tables(Privilege.MAINTAIN),
    )
    def maintenance(self) -> MaintenanceState:
        """Return what maintenance is due, runs and was done, and what is paused."""
        return ANSWER

    @verb(
        'Do no work of a kind, or of all, for a while, but for what is asked for: {"op","seconds"}; 0 resumes. '
        "Answers {}.",
        PauseMaintenance,
        needs=on_all_tables(Privilege.MAINTAIN),
    )
    def pause_maintenance(self, asked: PauseMaintenance) -> None:
        """Pause a kind of work until some seconds have passed, or the store is closed. ``maintain`` still does it, and
        so does maintenance when writers wait for memory."""
        return ANSWER
