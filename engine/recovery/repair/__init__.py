"""Offline repair of a data directory: keeps what damaged files still hold, and reports what is lost."""

from .report import LogRepair, RepairReport, RowsetRepair
from .run import repair_store
from .source import Backups, Range, TabletBackup

__all__ = ["Backups", "LogRepair", "Range", "RepairReport", "RowsetRepair", "TabletBackup", "repair_store"]
