"""Jobs on whole tables: verify, back up, restore, load, copy, export, apply changes.

Each is a function here, a command ``nyala job ...``, and can be submitted to Spark: see docs/pipeline.md. Importing
this imports neither Spark nor numpy.
"""

from __future__ import annotations

from .executor import Executor, LocalExecutor
from .spark_executor import SparkExecutor
from .verification import KeyDifference, TableChecksum, TabletChecksum, Verification
from .verify_job import checksum, verify

__all__ = [
    "Executor",
    "KeyDifference",
    "LocalExecutor",
    "SparkExecutor",
    "TableChecksum",
    "TabletChecksum",
    "Verification",
    "checksum",
    "verify",
]
