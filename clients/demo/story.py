"""The six chapters of ``nyala demo``; every printed figure is measured during the run."""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console
from rich.rule import Rule
from rich.table import Table as TextTable

from ..api.connect import connect
from ..api.database import Database
from ..api.table import Table
from .crash import kill_during_load
from .flights import PRIMARY_KEY, SCHEMA, flights
from .server_process import ServerProcess

if TYPE_CHECKING:
    import pandas as pd

_CORRECTED_DAY = "2013-02-08"
_CANCELLED_DAY = "2013-02-09"
_REINSERTED = 25
_WIDTH = 100


def run_demo(console: Console | None = None, data: Path | None = None) -> None:
    """Run the demonstration in a temporary directory, or in the empty directory ``data``, which is then kept.

    Raises:
        StoreError: a step failed.
    """
    console = console or _console()
    started = time.perf_counter()
    console.print(Rule("Nyala: a mutable columnar store over Arrow Flight", characters="="))
    console.print("Starting a server. The first start on a machine compiles the kernels, which takes a minute or more.")
    with _directory(data) as directory, ServerProcess(directory) as server:
        console.print(f"The server listens on {server.url}; its data is in {directory}.\n")
        with connect(server.url) as database:
            table = _load(console, database)
            before = _correct(console, database, table)
            _compare(console, table, before)
            _storage(console, table)
        kill_during_load(console, server, flights_table=table.name)
        _farewell(console, time.perf_counter() - started)


def _console() -> Console:
    """Return a console of at most 100 columns; of exactly 100 if the width is unknown, as in a log."""
    console = Console(highlight=False)
    console.width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    return console


@contextmanager
def _directory(data: Path | None) -> Iterator[Path]:
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="nyala-demo-") as made:
        yield Path(made)


def _load(console: Console, database: Database) -> Table:
    _chapter(console, 1, "Load a year of flights", "create_table, then insert(frame): one durable commit a batch")
    frame = flights()
    table = database.create_table("flights", SCHEMA, primary_key=PRIMARY_KEY)
    started = time.perf_counter()
    result = table.insert(frame)
    seconds = time.perf_counter() - started
    console.print(
        f"{result.applied:,} rows of {len(SCHEMA)} columns, durable in {seconds:.2f} s: "
        f"{result.applied / seconds:,.0f} rows a second, through a socket and a write-ahead log."
    )
    again = table.insert_ignore(frame.head(1000))
    console.print(f"The first 1,000 again with insert_ignore: {again.applied} applied, {again.ignored:,} ignored.")
    flushed = table.maintain("flush")
    arrow_bytes = pa.Table.from_pandas(frame, SCHEMA, preserve_index=False).nbytes
    console.print(
        f"Flushed: columnar files now hold the rows in key order, in {flushed['bytes_written'] / 1e6:.1f} MB; "
        f"as Arrow they take {arrow_bytes / 1e6:.0f} MB.\n"
    )
    return table


def _correct(console: Console, database: Database, table: Table) -> int:
    """Change existing rows; return the timestamp just before."""
    _chapter(console, 2, "Correct it", "upsert, delete and insert on rows in columnar files")
    before = database.now()
    late = table.scan(where=_day(_CORRECTED_DAY) + " and arr_delay is not null").to_pandas()
    late["arr_delay"] = late["arr_delay"] - 15
    corrected = table.upsert(late[[*PRIMARY_KEY, "arr_delay"]])
    console.print(f"{_CORRECTED_DAY}, a snowstorm: {corrected.applied:,} arrival delays corrected by 15 minutes.")
    cancelled = table.scan(where=_day(_CANCELLED_DAY) + " and dep_time is null").to_pandas()
    deleted = table.delete(cancelled[PRIMARY_KEY])
    console.print(f"{_CANCELLED_DAY}, the day after: {deleted.applied:,} cancelled flights deleted.")
    inserted = table.insert(_typed(cancelled.head(_REINSERTED)))
    console.print(f"{inserted.applied} of them inserted again with the same keys.\n")
    return before


def _compare(console: Console, table: Table, before: int) -> None:
    _chapter(console, 3, "Compare then and now", "scan(where=...) and scan(where=..., as_of=before)")
    where = f"time_hour >= timestamp '{_CORRECTED_DAY}' and time_hour < timestamp '2013-02-10'"
    columns = ["carrier", "arr_delay"]
    then, now = (
        _mean_delays(table.scan(columns=columns, where=where, as_of=moment).to_pandas()) for moment in (before, None)
    )
    text = TextTable("carrier", title=f"Mean arrival delay in minutes, {_CORRECTED_DAY} and {_CANCELLED_DAY}")
    for heading in ("flights then", "flights now", "delay then", "delay now", "change"):
        text.add_column(heading, justify="right")
    for carrier in sorted(then, key=lambda name: -then[name][0])[:8]:
        (rows_then, delay_then), (rows_now, delay_now) = then[carrier], now[carrier]
        change = f"{delay_now - delay_then:+.1f}"
        text.add_row(carrier, f"{rows_then:,}", f"{rows_now:,}", f"{delay_then:.1f}", f"{delay_now:.1f}", change)
    console.print(text)
    total_then, total_now = table.scan(as_of=before).count(), table.scan().count()
    console.print(f"Rows in the table: {total_then:,} then, {total_now:,} now. Both remain readable for seven days.\n")


def _mean_delays(rows: pd.DataFrame) -> dict[str, tuple[int, float]]:
    """Return (flights, mean delay) by carrier."""
    grouped = rows.groupby("carrier").agg(flights=("arr_delay", "size"), delay=("arr_delay", "mean"))
    return {row.Index: (row.flights, row.delay) for row in grouped.itertuples()}  # pyright: ignore


def _storage(console: Console, table: Table) -> None:
    _chapter(console, 4, "Look inside", "stats(), after maintain('flush_deltas')")
    table.maintain("flush_deltas")
    stats = table.stats()
    rows = stats["live_rows"]
    text = TextTable("column", "encoding", title=f"{rows:,} live rows, {stats['bytes_on_disk'] / 1e6:.1f} MB on disk")
    for heading in ("bytes", "bytes a row", "of raw"):
        text.add_column(heading, justify="right")
    for column in stats["columns"]:
        size, raw = column["bytes_on_disk"], max(column["raw_bytes"], 1)
        text.add_row(
            column["name"], ", ".join(column["encodings"]), f"{size:,}", f"{size / rows:.2f}", f"{size / raw:.0%}"
        )
    console.print(text)
    started = time.perf_counter()
    whole = table.scan().to_arrow()
    seconds = time.perf_counter() - started
    console.print(
        f"A full scan into Arrow: {whole.num_rows:,} rows, {whole.nbytes / 1e6:.0f} MB in {seconds:.2f} s, "
        f"{whole.num_rows / seconds / 1e6:.1f} million rows a second.\n"
    )


def _farewell(console: Console, seconds: float) -> None:
    _chapter(console, 6, "Where to go next", f"the demonstration took {seconds:.0f} s")
    console.print("  README.md                 ten lines of Python to start with")
    console.print("  docs/python.md            the Python API: write, scan, time travel")
    console.print("  docs/flight.md            the protocol, for clients in any language")
    console.print("  docs/guarantees.md        the guarantees, each with the test that proves it")
    console.print("  nyala serve --data DIR    a server of your own")


def _chapter(console: Console, number: int, title: str, how: str) -> None:
    console.print(f"[bold]{number}. {title}[/bold]  [dim]{how}[/dim]")


def _day(day: str) -> str:
    following = dt.date.fromisoformat(day) + dt.timedelta(days=1)
    return f"time_hour >= timestamp '{day}' and time_hour < timestamp '{following}'"


def _typed(frame: pd.DataFrame) -> pa.Table:
    """Return rows read from the table in the table's types: pandas turns integers with NULLs into floats."""
    return pa.Table.from_pandas(frame, schema=SCHEMA, preserve_index=False)
