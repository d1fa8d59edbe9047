"""Offline repair of a data directory: what can be kept of damaged files is kept, and what is lost is said."""

from .report import LogRepair, RepairReport, RowsetRepair
from .run import repair_store
from .source import Backups, Range, TabletBackup

__all__ = ["Backups", "LogRepair", "Range", "RepairReport", "RowsetRepair", "TabletBackup", "repair_store"]
