"""Jobs on whole tables: verify, back up, restore, load, copy, export, apply changes. See docs/pipeline.md.

Also the program for ``spark-submit``: the commands of ``nyala job``, whose tasks Spark runs unless told otherwise.

spark-submit .../nyala/jobs.py backup flights s3://bucket/backups --url grpc://server:8815
python -m nyala.jobs verify flights --url grpc://a:8815 --other-url grpc://b:8815
"""

import os

from nyala.clients.cluster.upkeep.balance_report import BalancePlan
from nyala.clients.executors.executor import Executor, LocalExecutor
from nyala.clients.executors.spark_executor import SparkExecutor
from nyala.clients.jobs.backup.backup_job import BackupResult, backup
from nyala.clients.jobs.backup.chain import Backup, list_backups
from nyala.clients.jobs.backup.check_job import ClusterCheck, check_cluster
from nyala.clients.jobs.backup.export_job import ExportResult, export
from nyala.clients.jobs.backup.restore_job import RestoreResult, restore
from nyala.clients.jobs.backup.restore_pin_job import RestorePinResult, restore_pin
from nyala.clients.jobs.backup.verification import KeyDifference, TableChecksum, TabletChecksum, Verification
from nyala.clients.jobs.backup.verify_job import checksum, verify
from nyala.clients.jobs.balance_job import SkippedMove, apply_balance, plan_balance
from nyala.clients.jobs.copy_job import CopyResult, copy_table
from nyala.clients.jobs.copy_store_job import copy_store
from nyala.clients.jobs.files.apply_job import ApplyResult, apply_changes
from nyala.clients.jobs.files.file_format import ReadOptions
from nyala.clients.jobs.files.follow_job import FollowedFile, FollowResult, follow
from nyala.clients.jobs.files.load_job import LoadResult, load
from nyala.clients.jobs.files.rejects import RefusedRow
from nyala.schemas.store.checkpoint import StoreCopied

__all__ = [
    "ApplyResult",
    "Backup",
    "BackupResult",
    "BalancePlan",
    "ClusterCheck",
    "CopyResult",
    "Executor",
    "ExportResult",
    "FollowResult",
    "FollowedFile",
    "KeyDifference",
    "LoadResult",
    "LocalExecutor",
    "ReadOptions",
    "RefusedRow",
    "RestorePinResult",
    "RestoreResult",
    "SkippedMove",
    "SparkExecutor",
    "StoreCopied",
    "TableChecksum",
    "TabletChecksum",
    "Verification",
    "apply_balance",
    "apply_changes",
    "backup",
    "check_cluster",
    "checksum",
    "copy_store",
    "copy_table",
    "export",
    "follow",
    "list_backups",
    "load",
    "plan_balance",
    "restore",
    "restore_pin",
    "verify",
]


def main() -> None:
    """Run one job."""
    from nyala.clients.cli import job
    from nyala.clients.cli.run import run

    os.environ.setdefault("NYALA_EXECUTOR", "spark")
    run(lambda: job.app(obj=_no_engine, prog_name="jobs.py"))


def _no_engine(path: object, create: bool = False, name: str | None = None) -> None:
    """Raise an error for ``--data``: Spark's workers could not reach it."""
    from nyala.schemas.errors import InvalidArgumentError

    raise InvalidArgumentError(f"tasks on Spark need a server: serve {path} and give the --url of the server")


if __name__ == "__main__":
    main()
