"""The chapter that kills the server during a load."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
from rich.console import Console

from ...schemas import compute as pc
from ...schemas.errors import InternalError, StoreError
from ..api.connect import connect
from ..api.table import Table
from .flights import PRIMARY_KEY, SCHEMA, flights
from .server_process import ServerProcess

_BATCH_ROWS = 4096
_KILL_AFTER = 20
"""Batches acknowledged before the server is killed."""
_WAIT_SECONDS = 60


class _Load:
    """A load that records what was acknowledged, until the server is gone."""

    def __init__(self, table: Table, batches: list[pa.Table]) -> None:
        self.acknowledged: set[int] = set()
        self.error = ""
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(table, batches))
        self._thread.start()

    def wait_until_under_way(self) -> None:
        self._enough.wait(_WAIT_SECONDS)

    def wait_until_ended(self) -> None:
        self._thread.join(_WAIT_SECONDS)

    def _run(self, table: Table, batches: list[pa.Table]) -> None:
        try:
            for number, batch in enumerate(batches):
                table.insert(batch, atomic=True)
                self.acknowledged.add(number)
                if number >= _KILL_AFTER:
                    self._enough.set()
        except StoreError as error:
            self.error = error.code
        self._enough.set()


def kill_during_load(console: Console, server: ServerProcess, flights_table: str) -> None:
    """Load the flights into a second table, kill the server meanwhile, restart it and check every batch.

    Raises:
        InternalError: an acknowledged row is lost, or a batch is incomplete.
    """
    console.print("[bold]5. Pull the plug[/bold]  [dim]kill -9 during a load, then restart[/dim]")
    batches = _batches()
    with connect(server.url) as database:
        expected = database.table(flights_table).scan().count()
        schema = batches[0].schema
        table = database.create_table("replay", schema, primary_key=PRIMARY_KEY)
        load = _Load(table, batches)
        load.wait_until_under_way()
        server.kill()
        load.wait_until_ended()
    console.print(
        f"Killed the server (SIGKILL) after {len(load.acknowledged)} of {len(batches)} batches "
        f"were acknowledged; the load stopped with {load.error or 'no error'}."
    )
    started = time.perf_counter()
    server.start()
    console.print(f"Restarted on the same directory in {time.perf_counter() - started:.1f} s.")
    with connect(server.url) as database:
        found = _rows_by_batch(database.table("replay").scan(columns=["batch"]).to_arrow())
        _check(batches, load.acknowledged, found)
        kept = database.table(flights_table).scan().count()
        if kept != expected:
            raise InternalError(f"table {flights_table} had {expected:,} rows before the kill and has {kept:,} now")
    extra = len(found) - len(load.acknowledged)
    console.print(
        f"Found every acknowledged row: {sum(found.values()):,} rows in {len(found)} batches"
        f"{f', {extra} of them logged but not yet acknowledged' if extra else ''}; no batch is incomplete. "
        f"Table {flights_table} still has its {kept:,} rows.\n"
    )


def _batches() -> list[pa.Table]:
    rows = pa.Table.from_pandas(flights(), schema=SCHEMA, preserve_index=False)
    parts = [rows.slice(first, _BATCH_ROWS) for first in range(0, rows.num_rows, _BATCH_ROWS)]
    return [
        part.append_column("batch", pa.array([number] * part.num_rows, pa.int32())) for number, part in enumerate(parts)
    ]


def _rows_by_batch(rows: pa.Table) -> dict[int, int]:
    return {count["values"]: count["counts"] for count in pc.value_counts(rows["batch"]).to_pylist()}


def _check(batches: list[pa.Table], acknowledged: set[int], found: dict[int, int]) -> None:
    if lost := acknowledged - set(found):
        raise InternalError(f"acknowledged batches are lost: {sorted(lost)}")
    for number, rows in found.items():
        if rows != batches[number].num_rows:
            raise InternalError(f"batch {number} is incomplete: {rows} of {batches[number].num_rows} rows")
