"""Jobs on whole tables: verify, back up, restore, load, copy, export, apply changes.

Each is a function here, a command ``nyala job ...``, and can be submitted to Spark: see docs/pipeline.md. Importing
this imports neither Spark nor numpy.
"""

from __future__ import annotations

from ..executors.executor import Executor, LocalExecutor
from ..executors.spark_executor import SparkExecutor
from .apply_job import ApplyResult, apply_changes
from .backup_job import BackupResult, backup
from .chain import Backup, list_backups
from .copy_job import CopyResult, copy_table
from .export_job import ExportResult, export
from .file_format import ReadOptions
from .load_job import LoadResult, load
from .load_part import RefusedRow
from .restore_job import RestoreResult, restore
from .verification import KeyDifference, TableChecksum, TabletChecksum, Verification
from .verify_job import checksum, verify

__all__ = [
    "ApplyResult",
    "Backup",
    "BackupResult",
    "CopyResult",
    "Executor",
    "ExportResult",
    "KeyDifference",
    "LoadResult",
    "LocalExecutor",
    "ReadOptions",
    "RefusedRow",
    "RestoreResult",
    "SparkExecutor",
    "TableChecksum",
    "TabletChecksum",
    "Verification",
    "apply_changes",
    "backup",
    "checksum",
    "copy_table",
    "export",
    "list_backups",
    "load",
    "restore",
    "verify",
]
