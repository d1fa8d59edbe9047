"""What is done before a store is closed, while it serves. To close it takes as long as the maintenance that runs; and
what is in files need not be replayed by whoever opens it next."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...engine import threads
from ...schemas.errors import StoreError
from ...schemas.protocol.service import MaintenanceKind, StoreService
from ...schemas.store.maintenance import PAUSE_SECONDS_MAX, PauseMaintenance

HAND_OVER_SECONDS = 1.0
"""How long calls may run on once a store is to go to another process: clients repeat those that are ended."""
_LOOK_SECONDS = 0.05
_LOG = logging.getLogger("nyala.flight_server")


def rest_within(store: StoreService, seconds: float, gives_up: Callable[[], bool] = lambda: False) -> None:
    """Let no maintenance begin any more before the process closes its store, and wait for what runs, for so many
    seconds at most, and until ``gives_up()``."""
    until = threads.monotonic() + seconds
    try:
        store.pause_maintenance(PauseMaintenance(seconds=PAUSE_SECONDS_MAX))
        while store.maintenance().running and threads.monotonic() < until and not gives_up():
            threads.sleep(_LOOK_SECONDS)
    except StoreError as error:
        _LOG.warning("maintenance could not be stopped: %s", error.message)


def flush_within(store: StoreService, seconds: float, gives_up: Callable[[], bool] = lambda: False) -> None:
    """Flush the tables before the process closes its store, as far as that goes in ``seconds``, and until
    ``gives_up()``."""
    until, is_over = threads.monotonic() + seconds, threads.Event()
    flushing = threads.Thread(target=_flush_until, args=(store, is_over), name="nyala-flush", daemon=True)
    if seconds > 0 and not gives_up():
        flushing.start()
        while flushing.is_alive() and threads.monotonic() < until and not gives_up():
            flushing.join(_LOOK_SECONDS)
        is_over.set()


def _flush_until(store: StoreService, is_over: threads.Event) -> None:
    try:
        if not store.maintenance().is_on:
            return
        for kind in (MaintenanceKind.FLUSH, MaintenanceKind.FLUSH_DELTAS):
            for table in store.tables():
                if is_over.is_set():
                    return
                if store.describe_table(table).options.maintenance == "on":
                    store.maintain(table, kind)
    except StoreError as error:
        _LOG.warning("not everything was flushed; the next start replays the rest from the log: %s", error.message)
