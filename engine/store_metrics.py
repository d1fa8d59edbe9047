"""StoreMetrics: what an open store has counted, gathered when somebody asks.

Nothing is counted for it that an operation would notice: the numbers are plain attributes of the parts that do the
work, and are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized

from ..schemas.store.description import Health, TabletStats
from ..schemas.store.metrics import MetricFamily, Metrics, Sample, counter, each_of, gauge, histogram, one
from ..schemas.table.table import TableOptions
from .catalog.catalog import Catalog
from .commit.memory_gate import MemoryGate
from .manifest.environment import Environment
from .options import StoreOptions
from .scan.plan.facade import Reads
from .scan.plan.planned_scans import PlannedScans
from .table.stats import tablet_stats
from .vectors.memory.reused import idle_bytes

TABLES_MAX = 100
"""The largest tables have numbers of their own; the others share those of the empty name."""
_UNFINISHED: tuple[str, ...] = ("transactions", "imports", "pins", "compactions")


class StoreMetrics:
    """The metrics of one open store, all of its rooms' numbers together. Thread safe."""

    def __init__(
        self,
        options: StoreOptions,
        environment: Environment,
        catalog: Catalog,
        gate: MemoryGate,
        reads: Reads,
        planned: PlannedScans,
        unfinished: Sequence[Sized],
        health: Callable[[], Health],
        replay_seconds: Callable[[], float],
    ) -> None:
        """``unfinished`` are the transactions, imports, pins and outside compactions that have not ended.
        ``replay_seconds`` returns how long the log would be replayed after a crash."""
        self._options = options
        self._environment = environment
        self._catalog = catalog
        self._gate = gate
        self._reads = reads
        self._planned = planned
        self._unfinished = unfinished
        self._health = health
        self._replay_seconds = replay_seconds

    def now(self) -> Metrics:
        """See ``StoreService.metrics``. Takes a few microseconds for each tablet and rowset."""
        by_table = {
            table.name: [tablet_stats(tablet) for tablet in table.version.tablets if tablet.elsewhere is None]
            for table in self._catalog.tables()
            if table.dropped_until is None
        }
        options = {table.name: table.options for table in self._catalog.tables() if table.dropped_until is None}
        of_tables = [*_tables(by_table), *_quotas(options)]
        parts = (self._log(), self._maintenance(), self._memory(), self._scans(), self._state(), of_tables)
        return Metrics(families=[family for part in parts for family in part])

    def _log(self) -> list[MetricFamily]:
        stats = self._environment.wal.stats()
        return [
            histogram(
                "nyala_log_sync_seconds", "Syncs of the log, each for a group of commits.", "", {"": stats.sync_seconds}
            ),
            counter(
                "nyala_log_records", "Records written to the log: commits, and notes of the store.", one(stats.records)
            ),
            counter("nyala_log_written_bytes", "Bytes written to the log.", one(stats.bytes_written)),
            gauge("nyala_log_size_bytes", "Disk space of the log.", one(stats.size_bytes)),
            gauge("nyala_log_segments", "Files of the log.", one(stats.segment_count)),
            gauge(
                "nyala_log_replay_seconds",
                "Estimated time to replay the log at the next start if the process died now.",
                one(self._replay_seconds()),
            ),
        ]

    def _maintenance(self) -> list[MetricFamily]:
        work = self._environment.work
        return [
            histogram(
                "nyala_maintenance_seconds", "Flushes and compactions that had something to do.", "work", work.seconds
            ),
            counter("nyala_maintenance_rows", "Rows that flushes and compactions wrote.", *each_of("work", work.rows)),
            counter(
                "nyala_maintenance_written_bytes",
                "Bytes of the files that flushes and compactions wrote.",
                *each_of("work", work.bytes_written),
            ),
            counter(
                "nyala_maintenance_freed_bytes",
                "Bytes of the files that flushes and compactions replaced.",
                *each_of("work", work.bytes_freed),
            ),
        ]

    def _memory(self) -> list[MetricFamily]:
        state, cache, index = self._gate.state(), self._environment.page_cache, self._environment.key_index
        hits, answers_bytes = self._reads.answers_kept
        kinds = {
            "rows": state.stores_bytes,
            "flushes": state.flushing_bytes,
            "batches": state.in_flight_bytes,
            "key_index": index.used_bytes,
            "page_cache": cache.size_bytes,
            "reads": self._reads.memory.taken_bytes,
            "answers": answers_bytes,
            "reusable": idle_bytes(),
        }
        limits = {
            "all": self._options.budget_bytes,
            "rows": state.limit_bytes,
            "key_index": index.limit_bytes,
            "page_cache": cache.capacity_bytes,
            "reads": self._options.reads_bytes,
            "answers": self._options.answers_bytes,
        }
        return [
            gauge("nyala_memory_bytes", "Memory of the store.", *each_of("kind", kinds)),
            gauge(
                "nyala_memory_limit_bytes",
                "Limits of the memory. The limit of rows covers flushes and batches too.",
                *each_of("kind", limits),
            ),
            counter(
                "nyala_throttled_batches",
                "Batches that waited because memory was filling up.",
                one(state.throttled_batches),
            ),
            counter("nyala_throttled_seconds", "Time that batches waited for memory.", one(state.throttled_seconds)),
            counter("nyala_refused_batches", "Batches refused because memory was full.", one(state.refused_batches)),
            counter("nyala_page_cache_hits", "Pages found in the page cache.", one(cache.hits)),
            counter("nyala_kept_answers", "Gets of rows that were answered by kept answers.", one(hits)),
            counter("nyala_page_cache_misses", "Pages read from files.", one(cache.misses)),
        ]

    def _scans(self) -> list[MetricFamily]:
        counts, kept = self._reads.counts.now(), self._planned.bytes_kept()
        rowsets = {
            "read": counts.rowsets_read,
            "looked_up": counts.rowsets_by_look_up,
            "pruned_by_key": counts.rowsets_by_key,
            "pruned_unchanged": counts.rowsets_unchanged,
        }
        chunks = {
            "read": counts.chunks_read,
            "changed_rows_only": counts.chunks_touched_only,
            "pruned_by_zone_map": counts.chunks_by_zone_map,
        }
        return [
            counter(
                "nyala_scan_rowsets",
                "Rowsets of scans, by whether they were read or why they were left out.",
                *each_of("outcome", rowsets),
            ),
            counter(
                "nyala_scan_chunks",
                "Ranges of rows of scans, by whether they were read or why they were left out.",
                *each_of("outcome", chunks),
            ),
            counter(
                "nyala_scan_rows", "Rows in the ranges that scans read, before the filter.", one(counts.rows_in_chunks)
            ),
            gauge("nyala_planned_scans", "Planned scans whose snapshot is kept for tickets.", one(len(self._planned))),
            gauge(
                "nyala_planned_scan_bytes",
                "Memory and disk space that only planned scans keep.",
                *each_of("place", {"disk": kept[0], "memory": kept[1]}),
            ),
        ]

    def _state(self) -> list[MetricFamily]:
        health = self._health()
        tablets = self._catalog.tablets()
        unfinished = dict(zip(_UNFINISHED, map(len, self._unfinished), strict=True))
        return [
            gauge("nyala_build_info", "The version of the server; always 1.", one(1, version=health.version)),
            gauge("nyala_read_only", "1 while the store takes no writes, else 0.", one(not health.takes_writes)),
            gauge("nyala_damaged_files", "Files found to be damaged.", one(len(health.damaged))),
            gauge(
                "nyala_maintenance_failing",
                "Pieces of maintenance that failed when they were last tried.",
                one(len(health.failing)),
            ),
            gauge(
                "nyala_quarantined_tablets",
                "Tablets that reject all reads and writes.",
                one(sum(tablet.quarantine is not None for tablet in tablets)),
            ),
            gauge(
                "nyala_clock_ahead_seconds",
                "How far timestamps are ahead of the clock.",
                one(health.clock_ahead_seconds),
            ),
            gauge(
                "nyala_disk_free_bytes",
                "Free space of the data directory's disk.",
                one(self._environment.fs.free_bytes("")),
            ),
            gauge(
                "nyala_disk_low_bytes",
                "Free disk space below which writes are rejected.",
                one(self._gate.disk.mark_bytes()),
            ),
            gauge(
                "nyala_commits_in_flight",
                "Commits that are not visible yet.",
                one(self._environment.mvcc.in_flight_count),
            ),
            gauge("nyala_unfinished", "Work of clients that has not ended.", *each_of("kind", unfinished)),
        ]


def _tables(by_table: dict[str, list[TabletStats]]) -> list[MetricFamily]:
    sizes = {name: sum(tablet.bytes_on_disk for tablet in tablets) for name, tablets in by_table.items()}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:TABLES_MAX]
    groups = {name: by_table[name] for name in largest}
    if others := by_table.keys() - groups.keys():
        groups[""] = [tablet for name in others for tablet in by_table[name]]

    def of_each(measure: Callable[[list[TabletStats]], float]) -> list[Sample]:
        return [one(measure(tablets), table=name) for name, tablets in groups.items()]

    def added(part: str) -> list[Sample]:
        return of_each(lambda tablets: sum(getattr(tablet, part) for tablet in tablets))

    parts = {
        "base": lambda tablet: tablet.bytes_on_disk - tablet.redo_bytes - tablet.undo_bytes,
        "redo": lambda tablet: tablet.redo_bytes,
        "undo": lambda tablet: tablet.undo_bytes,
    }
    sizes_of = [
        one(sum(map(size, tablets)), table=name, part=part)
        for name, tablets in groups.items()
        for part, size in parts.items()
    ]
    return [
        gauge("nyala_tables", "Tables.", one(len(by_table))),
        gauge("nyala_table_tablets", "Tablets of a table.", *of_each(len)),
        gauge("nyala_table_rows", "Rows of a table.", *added("live_rows")),
        gauge("nyala_table_rowsets", "Rowsets on disk.", *added("rowsets")),
        gauge("nyala_table_delta_files", "Files of changes.", *added("delta_files")),
        gauge("nyala_table_average_height", "Rowsets that a look-up of a random key would search.", *of_each(_height)),
        gauge("nyala_table_size_bytes", "Disk space: columns, changes, and old values.", *sizes_of),
        gauge("nyala_table_memory_bytes", "Rows and changes in memory.", *added("memory_bytes")),
    ]


def _quotas(options: dict[str, TableOptions]) -> list[MetricFamily]:
    """Return the quotas of the first tables that have any."""
    limited = sorted(name for name, each in options.items() if each.max_rows or each.max_bytes)[:TABLES_MAX]

    def of_each(option: str) -> list[Sample]:
        return [one(most, table=name) for name in limited if (most := getattr(options[name], option))]

    return [
        gauge("nyala_table_max_rows", "Quota of rows, of tables that have one.", *of_each("max_rows")),
        gauge("nyala_table_max_bytes", "Quota of bytes, of tables that have one.", *of_each("max_bytes")),
    ]


def _height(tablets: list[TabletStats]) -> float:
    """Return the average height of a table: that of its tablets, weighted by their rows."""
    rows = sum(tablet.live_rows for tablet in tablets)
    return sum(tablet.average_rowset_height * tablet.live_rows for tablet in tablets) / rows if rows else 0.0
