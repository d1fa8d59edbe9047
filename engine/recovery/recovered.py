"""Recovered: the state of a store after its log is applied."""

from __future__ import annotations

from dataclasses import dataclass

from ..catalog.catalog import Catalog
from ..cfile.cache import PageCache
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..home.home import HeldHome
from ..maintenance.replay_cost import ReplayedLog
from ..manifest.damage import DamageRegistry
from ..manifest.environment import Environment
from ..manifest.key_budget import KeyIndexBudget
from ..manifest.manifest import ManifestFile
from ..options import StoreOptions
from ..tablet.open import sweep
from . import recovery
from .log_replay import LoggedTablets


@dataclass(frozen=True, slots=True)
class Recovered:
    """The tables of a store at the end of the log, and the remembered answers."""

    environment: Environment
    catalog: Catalog
    writers: NumberedWrites
    transaction_memory: TransactionMemory
    replayed: ReplayedLog
    newest: int
    """The timestamp of the last commit."""


def recovered(home: HeldHome, manifest_file: ManifestFile, options: StoreOptions, damage: DamageRegistry) -> Recovered:
    """Recover a store: open the tables, remove files that nothing needs, and apply the log, whose timestamps the clock
    follows.

    Raises:
        CorruptionError: a file is not what was written.
        StorageFullError, UnavailableError: the disk is full, or fails.
    """
    manifest, clock = manifest_file.current, home.clock
    environment = Environment(
        fs=home.fs,
        manifest=manifest_file,
        wal=home.open_log(),
        mvcc=home.mvcc(),
        page_cache=PageCache(options.pages_min),
        key_index=KeyIndexBudget(options.key_index_bytes, on_demand=options.maintenance == "off"),
        here=options.here,
        damage=damage,
    )
    recovery.check_log(environment.wal.first_lsn, manifest)
    recovery.assume_attached(environment.wal, manifest_file)
    catalog = Catalog(environment, options.limits)
    catalog.load()
    sweep(environment, manifest_file.current, home.first_number)
    known = [max(tablet.last_timestamp, tablet.version.history_floor) for tablet in catalog.tablets()]
    known += [table.last_change for table in catalog.tables()]  # some of it is in quarantined tablets
    in_files = max([manifest.last_timestamp, *known])
    clock.update(in_files)
    writers, memory = NumberedWrites(), TransactionMemory()
    tablets = LoggedTablets(catalog.tables())
    with writers.restoring({table.table_id for table in catalog.tables()}):
        replayed, logged = recovery.replay(environment.wal, tablets, writers, memory, environment, options)
    recovery.end_with_log(manifest_file, replayed.last_lsn)
    clock.update(logged)
    return Recovered(environment, catalog, writers, memory, replayed, max(in_files, logged))
