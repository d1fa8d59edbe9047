"""The copy that begins a mirror of PostgreSQL, beside PostgreSQL's own COPY to a client that drops the rows. All of it
runs on this machine: the copy shares the processors with PostgreSQL.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
from rich.console import Console

from bench.engine.scratch import REHEARSAL_ROWS, Results, scratch_store
from bench.measure import take_turns
from bench.postgres import INSTALLED, Cluster
from bench.report import Suite
from nyala.sources.postgres import mirror

COPY, MIRROR = "COPY by psql", "Nyala's copy"
TABLES = {
    "pgbench's accounts": (
        "aid int PRIMARY KEY, bid int, abalance int, filler char(84)",
        "SELECT i, i / 100000 + 1, 0, '' FROM generate_series(1, {rows}) i",
    ),
    "seven mixed columns": (
        "id int8 PRIMARY KEY, account int8, amount numeric(12, 2), score float8, at timestamp, note text, paid boolean",
        "SELECT i, i * 7919::int8 % 1000003, (i % 1000000) / 100.0, sqrt(i), "
        "timestamp '2024-01-01' + i * interval '1 s', 'note ' || i % 5000, i % 3 = 0 FROM generate_series(1, {rows}) i",
    ),
}
"""Columns and rows of each case."""


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Copy each table into an empty store, in turn with COPY."""
    results = Results(console)
    with _cluster(work) as cluster:
        for number, (case, (columns, select)) in enumerate(TABLES.items()):
            for name, count in ((f"rehearsal{number}", REHEARSAL_ROWS), (f"table{number}", rows)):
                _run(cluster, f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} {select.format(rows=count)}")
                _run(cluster, f"VACUUM ANALYZE {name}", "CHECKPOINT")
            for name, count, times in ((f"rehearsal{number}", REHEARSAL_ROWS, 1), (f"table{number}", rows, rounds)):
                actions = {
                    COPY: lambda _, name=name: _copied_by_psql(cluster, name),
                    MIRROR: lambda _, name=name, count=count: _mirrored(cluster, name, count, work / "store"),
                }
                taken = take_turns(actions, times)
            for subject, samples in taken.items():
                results.add(case, "rows/s", [rows / each for each in samples], subject)
    return Suite("mirror", {"rows": rows, "rounds": rounds}, results.all)


@contextmanager
def _cluster(work: Path) -> Iterator[Cluster]:
    """Start PostgreSQL, ready for mirrors, in an empty folder."""
    folder = work / "postgres"
    shutil.rmtree(work, ignore_errors=True)
    folder.mkdir(parents=True)
    cluster = Cluster(folder)
    _run(cluster, "ALTER SYSTEM SET wal_level = logical")
    cluster.close()
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(work, ignore_errors=True)


def _run(cluster: Cluster, *statements: str) -> list[Any]:
    """Run statements, each by itself; return the rows of the last."""
    connection = psycopg2.connect(cluster.address)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
    connection.close()
    return rows


def _copied_by_psql(cluster: Cluster, table: str) -> None:
    psql = sorted(INSTALLED.glob("*/bin/psql"))[-1]
    copy = f"COPY {table} TO STDOUT"
    subprocess.run([str(psql), "-q", "-c", copy, cluster.address], check=True, stdout=subprocess.DEVNULL)


def _mirrored(cluster: Cluster, table: str, rows: int, folder: Path) -> None:
    _run(cluster, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    with scratch_store(folder) as database:
        mirror(database, cluster.address, [f"public.{table}"], until_caught_up=True)
        assert database.table(table).count() == rows
