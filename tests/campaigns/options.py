"""The options that a campaign draws for its stores and tables, beside all else that it draws from its seed.

Swarm testing (Groce et al., ISSTA 2012): each round leaves out a random half of what may be set. So a round is not
average in every way, and two options meet without the others that would hide what they do together.

A campaign has one `Swarm`. In a `round` options are in force: all stores that this process or one that it starts opens
by `stored`, `keywords` or `flags`, and all tables that it makes with `columns` and `table`, have them. Outside of a
round nothing is in force, as in the tests by day. The options are printed when a round begins and when it fails;
``--options`` takes the line, and then each round has these.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.engine.fs import FileSystem
from nyala.engine.fs.encryption.opening import opened
from nyala.engine.home.opening import home_at
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.cells.encoding import COMPRESSIONS, encodings_for
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import UnavailableError
from nyala.schemas.store.store_key import StoreKey
from nyala.schemas.table.column import BLOCK_ROWS, ColumnOptions
from tests.doubles.encrypted import KEY

Value = int | float | str
TINY: dict[str, tuple[Value, ...]] = {
    "flush_bytes": (1, 400, 4_000),
    "flush_deltas_bytes": (1, 200, 2_000),
    "direct_load_bytes": (1, 100),
    "direct_load_unsorted_bytes": (1, 100),
    "redo_files_count": (2, 3),
    "history_gc_bytes": (1, 1_000),
    "compaction_bytes": (1_000, 100_000),
    "key_index_bytes": (0, 100),
    "wal_queue_bytes": (1_000,),
    "page_cache_bytes": (1, 4_096),
    "scan_batch_bytes": (1, 200),
    "memory_bytes": (200_000,),
    "transaction_bytes": (100_000,),
}
"""Values for stores of a few rows: so small that what is rare comes all the time. Their order is part of the seeds of
the simulation."""
_MORE: dict[str, tuple[Value, ...]] = {
    "budget_bytes": (16 << 20, 64 << 20, 1 << 30),
    "redo_share": (0.001, 0.5),
    "memory_soft_share": (0.05, 0.9),
    "memory_throttle_seconds": (0.0, 0.05),
    "recovery_seconds_max": (0.1, 1.0, 60.0),
    "disk_reserve_bytes": (0,),
    "scan_threads": (0, 1, 2, 4),
    "load_threads": (1, 2),
    "scan_buffer_bytes": (0, 1 << 16),
}
FEW_ROWS: dict[str, tuple[Value, ...]] = {**TINY, **_MORE, "wal_segment_bytes": (1 << 12, 1 << 14, 1 << 16)}
del FEW_ROWS["memory_bytes"], FEW_ROWS["transaction_bytes"]  # these refuse what a campaign counts on
LOADS: dict[str, tuple[Value, ...]] = {
    **_MORE,
    "flush_bytes": (4_000, 64 << 10, 1 << 20, 96 << 20),
    "flush_deltas_bytes": (2_000, 16 << 10, 256 << 10, 32 << 20),
    "direct_load_bytes": (1_000, 1 << 20),
    "direct_load_unsorted_bytes": (1_000, 1 << 20),
    "redo_files_count": (2, 3, 20),
    "history_gc_bytes": (1_000, 1 << 16, 8 << 20),
    "compaction_bytes": (1 << 16, 1 << 22),
    "key_index_bytes": (0, 10_000, 1 << 24),
    "wal_segment_bytes": (1 << 16, 1 << 20, 1 << 24),
    "wal_queue_bytes": (10_000, 1 << 20),
    "page_cache_bytes": (1, 1 << 16, 1 << 24),
    "scan_batch_bytes": (4_000, 1 << 16, 1 << 20),
    "memory_bytes": (64 << 20, 1 << 30),
    "reads_bytes": (64 << 20, 256 << 20),
    "transaction_bytes": (16 << 20,),
    "log_linger_ms": (0.0, 2.0, 50.0),
    "bucket_cache_bytes": (0, 100_000),
}
"""The same for stores of some MiB; large values, too, with which nothing is flushed."""
OF_TABLES: dict[str, tuple[Value, ...]] = {
    "row_column": (True,),
    "cell_bytes_max": (1 << 20,),
    "max_rows": (1 << 40,),
    "max_bytes": (1 << 50,),
}
"""Options of tables. The quotas are never reached: they are counted all the same."""
OF_COLUMNS = ("encodings", "compressions", "block_rows")
"""Their value is a number, from which the encoding, compression or ``block_rows`` of each column follows."""
ENCRYPTION = "encryption"
ALLOWED: dict[str, tuple[Value, ...]] = {
    "durability": ("os",),
    "maintenance": ("off",),
    "history_max_age_seconds": (120, 3600),
    "home": ("bucket",),
    "processes": (2, 3),
}
"""Not for each campaign: without power failures; with maintenance by itself; with checks that need no longer history;
with a store that may as well be in a bucket, which is a directory; with a server of its own."""
OF_MAINTENANCE = frozenset({"budget_bytes", "memory_bytes"})
"""Where nothing is flushed by itself, the default of memory is needed."""
_OF_BUCKETS = frozenset({"log_linger_ms", "bucket_cache_bytes"})
_OF_DIRECTORIES = frozenset({ENCRYPTION, "processes"})
NOT_OF_STORES = {
    "limits": "they refuse what workloads send; tests/engine and tests/flight_server have each at its edge",
    "memory_patience_seconds": "a shorter one refuses loads that a workload counts on",
    "staging_ttl_seconds": "unfinished work would be discarded under a workload that goes on with it",
    "unfinished_max": "it refuses work", "staging_bytes": "it refuses work", "pinned_bytes": "it drops pins",
    "peer_unfinished_share": "it refuses work",
    "disk_low_bytes": "it refuses writes; full_disk.py sets it",
    "scan_lease_seconds": "a planned scan that is dropped is no fault of the store",
    "scan_leases_count": "as scan_lease_seconds", "scan_lease_disk_bytes": "as scan_lease_seconds",
    "scan_lease_memory_bytes": "as scan_lease_seconds",
    "import_storage": "a place", "bucket_cache": "a place",
    "log_patience_seconds": "campaigns whose buckets fail set it", "lease_seconds": "as log_patience_seconds",
    "key_file": "encryption sets it", "key_command": "encryption sets it", "key": "encryption sets it",
    "clock_error_seconds": "it decides which moments are refused; campaigns let clocks be wrong by more",
    "placement": "which servers there are", "server": "which server this is",
}  # fmt: skip
"""Options of stores that no campaign draws, and why."""
NOT_OF_TABLES = {
    "maintenance": "as that of the store", "comment": "nothing depends on it",
    "order_by": "other rows come out: shapes of the model have it, and orders.py",
    "ttl": "other rows come out: shapes of the model have it",
}  # fmt: skip
"""The same of tables."""
NOT_OF_COLUMNS = dict.fromkeys(
    ("read_default", "write_default", "immutable", "type", "too_long", "default_expression", "merge"),
    "other rows come out: shapes of the model have it",
) | {"comment": "nothing depends on it"}
"""The same of columns."""
_ENVIRONMENT = "CAMPAIGN_OPTIONS"
_LEASE_SECONDS, _TAKE_OVER_SECONDS = 4.0, 60.0
"""Of a store in a bucket: soon over where its process is killed, and long enough for a busy machine."""


@dataclass(frozen=True)
class Options:
    """What was drawn, by name."""

    values: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Options:
        """Return the options of a line, as `str` writes it.

        Raises:
            argparse.ArgumentTypeError: it is none.
        """
        values: dict[str, Value] = {}
        for word in text.split():
            name, is_given, value = word.partition("=")
            if name not in NAMES or not is_given:
                raise argparse.ArgumentTypeError(f"{word!r} is no name=value of: {', '.join(sorted(NAMES))}")
            try:
                values[name] = json.loads(value)
            except ValueError:
                values[name] = value
        return cls(values)

    def __str__(self) -> str:
        words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.values.items()}
        return " ".join(f"{name}={words[name]}" for name in sorted(words))

    @property
    def key(self) -> StoreKey | None:
        """The key of encrypted stores."""
        return KEY if ENCRYPTION in self.values else None

    @property
    def is_in_bucket(self) -> bool:
        """Whether the store is in a bucket."""
        return self.values.get("home") == "bucket"

    @property
    def of_store(self) -> dict[str, Value]:
        """The options of the store, but for its key."""
        return {name: value for name, value in self.values.items() if name in StoreOptions.model_fields}

    @property
    def of_table(self) -> dict[str, Value]:
        """The options of tables."""
        return {name: value for name, value in self.values.items() if name in _TABLE_NAMES}

    def of_column(self, kind: LogicalType, name: str) -> dict[str, Any]:
        """Return how a column is stored."""
        choices = storages(kind)
        given = {what: self.values[what] for what in OF_COLUMNS if what in self.values}
        drawn = {what: Random(f"{number} {name}").choice(choices[what]) for what, number in given.items()}
        singular = {"encodings": "encoding", "compressions": "compression"}
        return {singular.get(what, what): value for what, value in drawn.items()}


_TABLE_NAMES = frozenset({*OF_TABLES, "history_max_age_seconds"})
NAMES = frozenset({*FEW_ROWS, *LOADS, *OF_TABLES, *OF_COLUMNS, *ALLOWED, ENCRYPTION})
"""All that may be drawn."""


@cache
def storages(kind: LogicalType) -> dict[str, tuple[Any, ...]]:
    """Return the encodings, compressions and ``block_rows`` that a column may have."""
    return {"encodings": encodings_for(kind), "compressions": COMPRESSIONS, "block_rows": (*BLOCK_ROWS[:2], None)}


@dataclass(frozen=True)
class Features:
    """What a campaign draws."""

    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The options of the store, and those of their values that make sense there."""
    allowed: Collection[str] = ()
    """Of `ALLOWED`."""
    without: Collection[str] = ()
    """What the campaign decides by itself."""

    def choices(self) -> dict[str, tuple[Value, ...]]:
        """Return all that may be set."""
        numbers = tuple(range(1000))
        every = {**self.values, **OF_TABLES, **dict.fromkeys(OF_COLUMNS, numbers), ENCRYPTION: ("on",)}
        every |= {name: ALLOWED[name] for name in self.allowed}
        return {name: every[name] for name in sorted(every) if name not in self.without}


IN_BUCKET = Features(LOADS, without={ENCRYPTION})
"""Of campaigns whose stores are in a bucket: those are not encrypted."""


def draw(random: Random, features: Features) -> Options:
    """Draw options: each feature is left out by a chance of a half."""
    values = {name: random.choice(some) for name, some in features.choices().items() if random.random() < 0.5}
    idle = OF_MAINTENANCE if values.get("maintenance") == "off" else frozenset()
    if "home" in features.allowed:
        idle |= _OF_DIRECTORIES if "home" in values else _OF_BUCKETS
    return Options({name: value for name, value in values.items() if name not in idle})


@dataclass(frozen=True, eq=False)
class Swarm:
    """The options of the rounds of a campaign."""

    features: Features
    seed: object = 0
    given: Options | None = None
    """In place of what is drawn."""

    @contextmanager
    def round(self, number: int) -> Iterator[Options]:
        """Put the options of a round in force, and print them; again, if it fails."""
        drawn = draw(Random(f"{self.seed} {number} options"), self.features) if self.given is None else self.given
        print(f"--options '{drawn}'", flush=True)
        try:
            with in_force(drawn):
                yield drawn
        except BaseException as error:
            if not isinstance(error, SystemExit) or error.code:
                print(f"failed with --options '{drawn}'", flush=True)
            raise


class Plain(Swarm):
    """Nothing is drawn: what is in force stays so. For tests by day."""

    def __init__(self) -> None:
        super().__init__(Features())

    @contextmanager
    def round(self, number: int) -> Iterator[Options]:
        """Change nothing."""
        yield current()


PLAIN = Plain()


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add ``--options``."""
    parser.add_argument("--options", type=Options.parse, help="name=value ..., in place of those that the seed draws")


def swarm_of(features: Features, arguments: argparse.Namespace) -> Swarm:
    """Return the swarm of a command line with ``--seed`` and ``--options``."""
    return Swarm(features, arguments.seed, arguments.options)


def current() -> Options:
    """Return the options in force."""
    return Options.parse(os.environ.get(_ENVIRONMENT, ""))


@contextmanager
def in_force(options: Options | str) -> Iterator[None]:
    """Put options in force, in this process and in those that it starts."""
    before = os.environ.get(_ENVIRONMENT)
    os.environ[_ENVIRONMENT] = str(options)
    try:
        yield
    finally:
        del os.environ[_ENVIRONMENT]
        if before is not None:
            os.environ[_ENVIRONMENT] = before


# --- what stores and tables have ---


def keywords(**base: Any) -> dict[str, Any]:
    """Return keywords of ``nyala.open``: those of a campaign, and in their place those in force."""
    drawn = current()
    return {**base, **drawn.of_store, **({"key": drawn.key} if drawn.key else {})}


def stored(base: StoreOptions | None = None) -> StoreOptions:
    """Return the options of a store: those of a campaign, and in their place those in force."""
    plain = StoreOptions()
    given = {} if base is None else {name: getattr(base, name) for name in StoreOptions.model_fields}
    changed = {name: value for name, value in given.items() if value != getattr(plain, name)}
    return StoreOptions(**keywords(**changed))


def flags(**base: Any) -> list[str]:
    """Return words of ``nyala serve`` for the same."""
    drawn = current()
    words = [word for name, value in {**base, **drawn.of_store}.items() for word in ("--set", f"{name}={value}")]
    words += ["--processes", str(drawn.values["processes"])] if "processes" in drawn.values else []
    return [*words, *key_words()]


def key_words() -> list[str]:
    """Return the words with which a command opens an encrypted store."""
    return ["--key-command", f"echo {KEY.text.strip()}"] if current().key else []


def columns(schema: pa.Schema, base: Mapping[str, Any] | None = None) -> dict[str, ColumnOptions] | None:
    """Return ``column_options`` of a table: those of a campaign, and how the options in force store each column."""
    drawn, given = current(), dict(base or {})
    if not drawn.values.keys() & set(OF_COLUMNS):
        return given or None
    found = {}
    for each in schema:
        column = ColumnOptions.model_validate(given.get(each.name, {}))
        kind = LogicalType.parse(column.type) if column.type else LogicalType.from_arrow(each)
        found[each.name] = column.model_copy(update=drawn.of_column(kind, each.name))
    return found


def table(**base: Any) -> dict[str, Any]:
    """Return the options of a table: those of a campaign, and further ones in force."""
    return {**current().of_table, **{name: value for name, value in base.items() if value is not None}}


def unlocked(fs: FileSystem) -> FileSystem:
    """Return a disk as the tools see it that read a store while nobody has it open."""
    key = current().key
    return opened(fs, key) if key else fs


def database_at(directory: Path | str, **base: Any) -> Database:
    """Open the store of a directory in this process: the directory itself, or a bucket in it."""
    return Database(store_at(directory, StoreOptions(**base)))


def store_at(directory: Path | str, base: StoreOptions | None = None) -> Store:
    """The same, as the engine has it. Waits until a process that was killed has lost the bucket."""
    if not current().is_in_bucket:
        return Store.open(str(directory), stored(base))
    lease = _LEASE_SECONDS if base is None or "lease_seconds" not in base.model_fields_set else base.lease_seconds
    more = {"bucket_cache": f"{directory}/cache", "lease_seconds": lease}
    options = StoreOptions.model_validate({**stored(base).model_dump(exclude={"key"}), "key": current().key, **more})
    deadline = time.monotonic() + _TAKE_OVER_SECONDS
    while True:
        try:
            return Store.open(home_at(f"file://{directory}/bucket", "a"), options)
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
