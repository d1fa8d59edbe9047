"""The suite ``sql``: all 22 queries of TPC-H by ``db.sql`` in this process, by Flight SQL from a server in a process of
its own, and by DataFusion over Parquet files (zstd, row groups of 100,000 rows).

Each answer is compared with DuckDB's before it is measured. All is done twice: on tables as they were loaded, and after
1 % of the rows of three large ones were updated and 1 % deleted. Limits of SQL have their defaults.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from rich.console import Console

import nyala
from bench.measure import take_turns
from bench.report import Result, Suite
from bench.tpch.answers import Rows, is_same
from bench.tpch.data import KEYS, ROWS_A_SCALE, generate, load, queries

from ..compare.peers.nyala_subject import free_port, wait_until_open

NATIVE, SERVED, FILES = "db.sql", "Flight SQL", "DataFusion over Parquet"
Ask = Callable[[str], pa.Table]


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure; a rehearsal of all queries comes first, and compares the answers."""
    scale = rows / ROWS_A_SCALE
    shutil.rmtree(work, ignore_errors=True)
    folder = work / "generated"
    folder.mkdir(parents=True)
    generate(scale, folder)
    try:
        with duckdb.connect() as peer, nyala.open(work / "own") as own:
            for name in KEYS:
                peer.execute(f"CREATE TABLE {name} AS SELECT * FROM '{folder / name}.parquet'")
            load(own, folder)
            results: list[Result] = []
            for state in ("", ", changed"):
                if state:
                    _change(own, peer)
                own.checkpoint(work / f"served{state}")
                with _Served(work / f"served{state}") as served:
                    _write_files(peer, folder)
                    asks = {
                        NATIVE: lambda text: own.sql(text).to_arrow(),
                        SERVED: served.ask,
                        FILES: _over_files(folder),
                    }
                    results += _measure(asks, peer, served, scale, rounds, state, console)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Suite("sql", {"scale": scale, "rounds": rounds}, results)


def _change(database: nyala.Database, peer: duckdb.DuckDBPyConnection) -> None:
    """Update 1 % of the rows of three tables, delete 1 %, and compact."""
    random = np.random.default_rng(7)
    for name, column in (("lineitem", "l_quantity"), ("orders", "o_totalprice"), ("partsupp", "ps_supplycost")):
        target = database.table(name)
        rows = target.scan([*KEYS[name], column]).to_arrow()
        draw = random.random(rows.num_rows)
        updated = rows.filter(pa.array(draw < 0.01))
        place = updated.schema.get_field_index(column)
        values = updated[column].take(pa.array(random.permutation(len(updated))))
        updated = updated.set_column(place, updated.schema.field(place), values)
        deleted = rows.filter(pa.array(draw > 0.99)).select(list(KEYS[name]))
        target.update(updated)
        target.maintain("flush_deltas")
        target.delete(deleted)
        target.maintain("compact")
        same = " AND ".join(f"{name}.{key} = c.{key}" for key in KEYS[name])
        peer.register("c", updated)
        peer.execute(f"UPDATE {name} SET {column} = c.{column} FROM c WHERE {same}")
        peer.register("c", deleted)
        peer.execute(f"DELETE FROM {name} USING c WHERE {same}")
        peer.unregister("c")


def _write_files(peer: duckdb.DuckDBPyConnection, folder: Path) -> None:
    for name in KEYS:
        target = folder / f"{name}.parquet"
        peer.execute(f"COPY {name} TO '{target}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 100000)")


def _over_files(folder: Path) -> Ask:
    session = SessionContext(SessionConfig().with_target_partitions(len(os.sched_getaffinity(0))))
    for name in KEYS:
        session.register_parquet(name, str(folder / f"{name}.parquet"))
    return lambda text: session.sql(text).to_arrow_table()


class _Served:
    """A server of a store, and a connection to it by ADBC."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        url = f"grpc://127.0.0.1:{port}"
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(folder), "--listen", url, "--sql"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until_open(port, self._process)
        self._connection = adbc.connect(url, autocommit=True)

    def ask(self, text: str) -> pa.Table:
        """Run a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetch_arrow_table()

    def processor_seconds(self) -> float:
        """Return the processor time of the server and of the processes that it started."""
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = file.read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            parents[int(file.parent.name)] = int(fields[1])
            ticks[int(file.parent.name)] = sum(map(int, fields[11:15]))
        family, size = {self._process.pid}, 0
        while len(family) > size:
            size = len(family)
            family |= {pid for pid, parent in parents.items() if parent in family}
        return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> "_Served":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(timeout=60)


def _measure(
    asks: Mapping[str, Ask],
    peer: duckdb.DuckDBPyConnection,
    served: _Served,
    scale: float,
    rounds: int,
    state: str,
    console: Console,
) -> list[Result]:
    def both(action: Callable[[], object]) -> tuple[float, float]:
        began, used = time.perf_counter(), time.process_time() + served.processor_seconds()
        action()
        return time.perf_counter() - began, time.process_time() + served.processor_seconds() - used

    results: list[Result] = []
    medians: dict[tuple[str, str], list[float]] = {}
    for number, text in queries(scale).items():
        expected = peer.execute(text).fetchall()
        for subject, ask in asks.items():
            assert is_same(_rows(ask(text)), expected), f"query {number}{state} of {subject} differs from DuckDB"
        actions = {subject: lambda _, text=text, ask=ask: _rows(ask(text)) for subject, ask in asks.items()}
        for subject, samples in take_turns(actions, rounds, both).items():
            for place, kind in enumerate(("", ", processor")):
                result = Result(f"query {number}{state}{kind}", subject, "s", [each[place] for each in samples])
                medians.setdefault((subject, kind), []).append(result.median)
                results.append(result)
            console.print(f"  query {number}{state}, {subject}: {medians[subject, ''][-1]:.3f} s")
    for (subject, kind), each in medians.items():
        ratios = np.array(each) / np.array(medians[FILES, kind])
        mean = float(np.exp(np.mean(np.log(ratios))))
        results.append(Result(f"geometric mean of the ratios{state}{kind}", subject, "x", [mean]))
        console.print(f"  {subject}{state}{kind}: {mean:.2f} of DataFusion over Parquet")
    return results


def _rows(rows: pa.Table) -> Rows:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
