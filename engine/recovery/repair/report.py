"""The report of a repair: what it finds, keeps and loses."""

from __future__ import annotations

from dataclasses import dataclass, field

ROOT = "damaged"
"""Where old files are kept."""


@dataclass(slots=True)
class RowsetRepair:
    """The repair of one rowset, and its losses."""

    table: str
    tablet: int
    rowset: int
    damaged: list[str]
    """One line for each damaged file: path and reason."""
    action: str = ""
    rows_kept: int = 0
    """Rows from its files, without those from a backup."""
    rows_lost: int | None = 0
    """None: all are lost, and their number is unknown."""
    keys_lost: list[str] = field(default_factory=list)
    """Ranges of keys, ends included, that contain lost rows, except those that the backup has."""
    cells_lost: dict[str, int] = field(default_factory=dict)
    """By column: cells of kept rows that are now NULL."""
    changes_lost: list[str] = field(default_factory=list)
    """Lost changes, for which older cells are shown."""
    backup: str | None = None
    """The backup for rows and cells that no sound file has: table, timestamp, folder."""
    rows_from_backup: int = 0
    cells_from_backup: dict[str, int] = field(default_factory=dict)
    """By column: cells of kept rows that now come from the backup."""
    history_floor: int | None = 0
    """Snapshots of the tablet before this timestamp can no longer be read; None: those before the repair."""


@dataclass(slots=True)
class LogRepair:
    """The repair of a damaged log, and its losses."""

    damaged: list[str]
    """One line for each damage: path, offset and reason."""
    records_lost: int = 0
    """Unreadable records. The number of their rows is unknown."""
    records_kept: int = 0
    records_after: int = 0
    """Those among the kept records that follow the first lost one."""
    rows_after: int = 0
    """Changed rows in them."""
    tablets: list[str] = field(default_factory=list)
    """Table and number of tablets that may have lost changes; files hold all changes of the others."""
    set_aside: list[str] = field(default_factory=list)
    """Files that no table refers to: rows of direct loads that a lost record attached, or remains of a crash."""


@dataclass(slots=True)
class RepairReport:
    """What a repair can do, or has done."""

    is_applied: bool = False
    kept_in: str = ROOT
    repairs: list[RowsetRepair] = field(default_factory=list)
    manifest: str | None = None
    """The damage of the manifest, which is restored from its copy without loss."""
    log: LogRepair | None = None
    log_reaches_back_to: int | None = None
    """The log also has changes of the repaired tablets from this timestamp on; the next start applies them again."""
    advice: list[str] = field(default_factory=list)
    """Further steps against the losses."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.repairs or self.log or self.manifest)
