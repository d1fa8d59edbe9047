"""What a repair finds, keeps and loses."""

from __future__ import annotations

from dataclasses import dataclass, field

ROOT = "damaged"
"""Where the old files are kept."""


@dataclass(slots=True)
class RowsetRepair:
    """What is done about one rowset, and what is lost by it."""

    table: str
    tablet: int
    rowset: int
    damaged: list[str]
    """One line for each damaged file: path and why."""
    action: str = ""
    rows_kept: int = 0
    """Rows of its files, those from a backup not counted."""
    rows_lost: int | None = 0
    """None: all, and nobody knows how many there were."""
    keys_lost: list[str] = field(default_factory=list)
    """Ranges of keys, ends included, in which rows are lost, but for those that the backup has."""
    cells_lost: dict[str, int] = field(default_factory=dict)
    """By column: cells of rows that are kept which are NULL now."""
    changes_lost: list[str] = field(default_factory=list)
    """Which changes are forgotten, so that older cells are shown."""
    backup: str | None = None
    """Where rows and cells come from that no sound file has: table, moment, folder."""
    rows_from_backup: int = 0
    cells_from_backup: dict[str, int] = field(default_factory=dict)
    """By column: cells of rows that are kept which are those of the backup now."""
    history_floor: int | None = 0
    """Moments of the tablet before this timestamp can no longer be read; None: those before the repair."""


@dataclass(slots=True)
class LogRepair:
    """What is done about a damaged log, and what is lost by it."""

    damaged: list[str]
    """One line for each damage: path, offset and why."""
    records_lost: int = 0
    """Records that cannot be read. Nobody knows how many rows they held."""
    records_kept: int = 0
    records_after: int = 0
    """Of those: records after the first one that is lost."""
    rows_after: int = 0
    """Changed rows in them."""
    tablets: list[str] = field(default_factory=list)
    """Table and number of the tablets that may have lost changes: of all others, files hold them."""
    set_aside: list[str] = field(default_factory=list)
    """Files that no table names: rows of direct loads that a lost record attached, or what a crash left."""


@dataclass(slots=True)
class RepairReport:
    """What can be done, or was."""

    is_applied: bool = False
    kept_in: str = ROOT
    repairs: list[RowsetRepair] = field(default_factory=list)
    manifest: str | None = None
    """What is wrong with the manifest, which is written anew as its copy says it; nothing is lost by that."""
    log: LogRepair | None = None
    log_reaches_back_to: int | None = None
    """Changes of the repaired tablets from this timestamp on are in the log too, and come back at the next start."""
    advice: list[str] = field(default_factory=list)
    """What else can be done about what is lost."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.repairs or self.log or self.manifest)
