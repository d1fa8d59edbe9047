"""Nyala: a mutable columnar store, in this process or over Arrow Flight.

    db = nyala.open("data/")                          # the engine, in this process
    db = nyala.connect("grpc://127.0.0.1:8815")       # the same over the network

Importing this loads nothing else: a client never imports the engine or a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    __version__: str

    from pathlib import Path

    from nyala import jobs as jobs
    from nyala import partition as partition
    from nyala import sources as sources
    from nyala import spark as spark
    from nyala.clients.api.alter import TableAlteration as TableAlteration
    from nyala.clients.api.connect import connect as connect
    from nyala.clients.api.database import Database as Database
    from nyala.clients.api.explanation import Explanation as Explanation
    from nyala.clients.api.lazy import datafusion_catalog as datafusion_catalog
    from nyala.clients.api.lazy import scan_polars as scan_polars
    from nyala.clients.api.scan import Scan as Scan
    from nyala.clients.api.table import Table as Table
    from nyala.clients.api.transaction import Transaction as Transaction
    from nyala.clients.offline_jobs.direct_scan import DirectScan as DirectScan
    from nyala.clients.offline_jobs.direct_scan import DirectSplit as DirectSplit
    from nyala.clients.sql.result import Result as Result
    from nyala.clients.sql.session import SqlSession as SqlSession
    from nyala.clients.sql.source.dataset import NyalaDataset as NyalaDataset
    from nyala.clients.sql.source.pushed import PushedFilter as PushedFilter
    from nyala.engine.options import StoreOptions
    from nyala.engine.options import StoreOptionsDict as StoreOptionsDict
    from nyala.schemas.errors import AlreadyPresentError as AlreadyPresentError
    from nyala.schemas.errors import ConflictError as ConflictError
    from nyala.schemas.errors import CorruptionError as CorruptionError
    from nyala.schemas.errors import InternalError as InternalError
    from nyala.schemas.errors import InvalidArgumentError as InvalidArgumentError
    from nyala.schemas.errors import NotFoundError as NotFoundError
    from nyala.schemas.errors import PermissionDeniedError as PermissionDeniedError
    from nyala.schemas.errors import RowErrors as RowErrors
    from nyala.schemas.errors import SnapshotTooOldError as SnapshotTooOldError
    from nyala.schemas.errors import StorageFullError as StorageFullError
    from nyala.schemas.errors import StoreError as StoreError
    from nyala.schemas.errors import UnauthenticatedError as UnauthenticatedError
    from nyala.schemas.errors import UnavailableError as UnavailableError
    from nyala.schemas.errors import UnreadableFileError as UnreadableFileError
    from nyala.schemas.errors import WrongServerError as WrongServerError
    from nyala.schemas.limits.limits import Limits as Limits
    from nyala.schemas.rows.operation import Operation as Operation
    from nyala.schemas.rows.order import OrderTerm as OrderTerm
    from nyala.schemas.rows.transaction import StagedRowError as StagedRowError
    from nyala.schemas.rows.transaction import StageResult as StageResult
    from nyala.schemas.rows.transaction import TransactionResult as TransactionResult
    from nyala.schemas.rows.write import CommitMode as CommitMode
    from nyala.schemas.rows.write import Durability as Durability
    from nyala.schemas.rows.write import RowError as RowError
    from nyala.schemas.rows.write import WriteResult as WriteResult
    from nyala.schemas.store.checkpoint import Checkpoint as Checkpoint
    from nyala.schemas.store.compaction import CompactionSummary as CompactionSummary
    from nyala.schemas.store.description import DamagedFile as DamagedFile
    from nyala.schemas.store.description import DroppedTable as DroppedTable
    from nyala.schemas.store.description import Health as Health
    from nyala.schemas.store.description import TabletPlace as TabletPlace
    from nyala.schemas.store.grants import Grant as Grant
    from nyala.schemas.store.grants import Privilege as Privilege
    from nyala.schemas.store.metrics import Metrics as Metrics
    from nyala.schemas.store.pins import KeptPin as KeptPin
    from nyala.schemas.store.placement import Placement as Placement
    from nyala.schemas.table.column import ColumnOptions as ColumnOptions
    from nyala.schemas.table.partition import HashLevel as HashLevel
    from nyala.schemas.table.partition import RangeBound as RangeBound
    from nyala.schemas.table.partition import RangeLevel as RangeLevel
    from nyala.schemas.table.partition import hash as hash
    from nyala.schemas.table.partition import range as range
    from nyala.schemas.table.partition_schema import TabletPartition as TabletPartition
    from nyala.schemas.table.table import TableDefinition as TableDefinition
    from nyala.schemas.table.table import TableOptionsDict as TableOptionsDict

_LAZY = {
    ".clients.api.alter": "TableAlteration",
    ".clients.api.connect": "connect",
    ".clients.api.database": "Database",
    ".clients.api.explanation": "Explanation",
    ".clients.api.lazy": "datafusion_catalog scan_polars",
    ".clients.api.scan": "Scan",
    ".clients.api.table": "Table",
    ".clients.api.transaction": "Transaction",
    ".clients.offline_jobs.direct_scan": "DirectScan DirectSplit",
    ".clients.sql.source.dataset": "NyalaDataset",
    ".clients.sql.source.pushed": "PushedFilter",
    ".clients.sql.result": "Result",
    ".clients.sql.session": "SqlSession",
    ".engine.options": "StoreOptionsDict",
    ".schemas.store.checkpoint": "Checkpoint",
    ".schemas.table.column": "ColumnOptions",
    ".schemas.store.compaction": "CompactionSummary",
    ".schemas.store.description": "DamagedFile DroppedTable Health TabletPlace",
    ".schemas.errors": "AlreadyPresentError ConflictError CorruptionError InternalError InvalidArgumentError "
    "NotFoundError PermissionDeniedError RowErrors SnapshotTooOldError StorageFullError StoreError "
    "UnauthenticatedError UnavailableError UnreadableFileError WrongServerError",
    ".schemas.store.grants": "Grant Privilege",
    ".schemas.limits.limits": "Limits",
    ".schemas.store.metrics": "Metrics",
    ".schemas.rows.operation": "Operation",
    ".schemas.rows.order": "OrderTerm",
    ".schemas.table.partition": "HashLevel RangeBound RangeLevel hash range",
    ".schemas.table.partition_schema": "TabletPartition",
    ".schemas.store.pins": "KeptPin",
    ".schemas.store.placement": "Placement",
    ".schemas.table.table": "TableDefinition TableOptionsDict",
    ".schemas.rows.transaction": "StageResult StagedRowError TransactionResult",
    ".schemas.rows.write": "CommitMode Durability RowError WriteResult",
}
_HOMES = {name: module for module, names in _LAZY.items() for name in names.split()}

_MODULES = ("jobs", "partition", "sources", "spark")


def open(
    path: str | Path,
    *,
    create: bool = True,
    name: str | None = None,
    read_only: bool = False,
    **options: Unpack[StoreOptionsDict],
) -> Database:
    """Open the store in the directory ``path``; ``options`` are fields of ``StoreOptions``.

    A URL such as ``s3://bucket/root`` is of a store in a bucket, which has a ``name`` (docs/failover.md).

    A missing store is created; with ``create=False`` that is an error, and nothing is written. Of a store that several
    processes serve (docs/servers.md), all parts are opened. With ``key_file``, ``key_command`` or ``key`` an encrypted
    store is opened, and a new one is encrypted (docs/encryption.md).

    With ``read_only``, an existing store is opened for reading only, also while another process has it, and however
    often that one changes: each read sees all writes that were acknowledged before. Nothing is written to the store.

    Raises:
        NotFoundError: there is no store, and ``create`` is False or ``read_only`` is True.
        UnavailableError: another process has it open, and ``read_only`` is False.
        CorruptionError: its files are damaged.
        InvalidArgumentError: an option is unknown or invalid.
    """
    from nyala.schemas.gc_pause import collector_paused

    with collector_paused():
        from pathlib import Path

        from pydantic import ValidationError

        from nyala.clients.api.database import Database
        from nyala.schemas.errors import InvalidArgumentError, NotFoundError
        from nyala.schemas.protocol.command import explain

        try:
            from nyala.engine.fs.local import LocalFileSystem
            from nyala.engine.home.checkpoint_mark import has_store
            from nyala.engine.options import StoreOptions
            from nyala.engine.store import Store
        except ModuleNotFoundError as error:
            raise InvalidArgumentError(
                f"nyala.open runs the store in this process and needs {error.name}: pip install 'nyala[server]', "
                "or connect to a server with nyala.connect"
            ) from None

    from nyala.first_compile import watch

    watch()
    try:
        chosen = StoreOptions.model_validate(options)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, "the call of nyala.open", StoreOptions.model_fields)) from None
    if read_only:
        return _opened_to_read(path, name, chosen)
    if isinstance(path, str) and "://" in path:
        from nyala.engine.home.opening import home_at

        home = home_at(path, name)
        if not create and not home.has_store():
            raise NotFoundError(f"there is no store {name!r} in {path}: check the URL, or create one with nyala.open")
        return Database(Store.open(home, chosen))
    if name is not None:
        raise InvalidArgumentError(f"a store in a directory has no name: leave name={name!r} out")
    if not create and not has_store(LocalFileSystem(path)):
        raise NotFoundError(f"there is no store in {path}: check the path, or create one with nyala.open(path)")
    from nyala.flight_server.processes.layout import ProcessLayout

    layout = ProcessLayout(Path(path).absolute())
    if layout.count() > 1 and chosen.server is None:
        from nyala.flight_server.processes.embedded import PartsStore

        return Database(PartsStore(layout, chosen))
    return Database(Store.open(path, chosen))


def _opened_to_read(path: str | Path, name: str | None, options: StoreOptions) -> Database:
    from pathlib import Path

    from nyala.clients.api.database import Database
    from nyala.engine.replica.opening import open_to_read
    from nyala.flight_server.processes.layout import ProcessLayout
    from nyala.schemas.errors import InvalidArgumentError

    if isinstance(path, str) and "://" in path:
        from nyala.engine.home.opening import home_at

        return Database(open_to_read(home_at(path, name), options))
    if name is not None:
        raise InvalidArgumentError(f"a store in a directory has no name: leave name={name!r} out")
    if ProcessLayout(Path(path).absolute()).count() > 1:
        raise InvalidArgumentError(
            f"several processes serve the store in {path}, and read_only opens the store of one process: connect to "
            "them with nyala.connect"
        )
    return Database(open_to_read(str(path), options))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("nyala")
    if name in _MODULES:
        return import_module(f"nyala.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES, "__version__"])
