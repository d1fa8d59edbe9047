"""Opens stores for a server, with compiled kernels. Imports the engine when it does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...schemas.gc_pause import collector_paused

if TYPE_CHECKING:
    from ...clients.flight.credentials import Credentials
    from ...engine.fs.encryption.key_source import KeySource
    from ...engine.home.home import Home
    from ...schemas.protocol.service import StoreService
    from ...schemas.store.placement import ServerIdentity

_SILENT_SECONDS = 3.0
_COMPILING_SECONDS = 1.0
"""Of work that is done at once unless the compiler has to run."""


@contextmanager
def said_if_slow(text: str, seconds: float = _SILENT_SECONDS) -> Iterator[None]:
    """Log ``text`` if a step of the process's start in the body takes longer than ``seconds``, so that users know what
    they wait for."""
    timer = threading.Timer(seconds, logging.getLogger("nyala.flight_server").info, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def open_warm(
    data: Path | str,
    options: dict[str, Any],
    here: ServerIdentity | None = None,
    credentials: Credentials | None = None,
    name: str | None = None,
) -> StoreService:
    """Open the store that the process serves, with compiled kernels, so that no request waits for the compiler.
    ``credentials`` are for the other servers of its placement; ``name`` is that of a store in a bucket, whose URL
    ``data`` is.

    Raises:
        StoreError: the store cannot be opened.
    """
    from ...engine.fs.store_lock import check_free

    if isinstance(data, Path):
        check_free(data)
        options = _with_key(data, options)
    warm_kernels()
    with collector_paused():
        from ...engine.home.opening import home_at

    return opened(home_at(data, name) if isinstance(data, str) else data, options, here, credentials)


def warm_kernels() -> None:
    """Compile the kernels, or load them, before the process opens its store."""
    from ...engine.kernels.compile.making import ensure_library

    told = "compiling the kernels, only needed on the first start; `nyala warmup` does it ahead of time"
    with said_if_slow(told, _COMPILING_SECONDS):
        ensure_library()
    from ...engine.kernels.compile.warmup import (  # not before: the first kernel's import looks for the library
        warm_up,
    )

    with said_if_slow(told):
        warm_up()


def opened(
    where: Path | Home, options: dict[str, Any], here: ServerIdentity | None, credentials: Credentials | None
) -> StoreService:
    """Open the store that the process serves, as one of a placement if ``here`` says which. Raises as ``open_warm``."""
    with collector_paused():
        from ...engine.options import StoreOptions
        from ...engine.store import Store

    shared = {"placement": here.placement, "server": here.server} if here else {}
    store = Store.open(where, StoreOptions(**options, **shared))
    if here is None:
        return store
    from ..stores.gateway import Gateway

    return Gateway(store, here, credentials)


def _with_key(data: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the key, which is asked for once, and before long preparations.

    Raises:
        InvalidArgumentError: it is not the key of the store in ``data``.
    """
    from ...engine.fs.encryption.opening import check_key
    from ...engine.fs.failures import named
    from ...engine.fs.local import LocalFileSystem

    source = key_source(options.get("key_file"), options.get("key_command"))
    with named(f"the store in {data} could not be read"):
        check_key(LocalFileSystem(data), key := source.read())
    return {**options, "key_file": None, "key_command": None, "key": key}


def key_source(file: str | None, command: str | None) -> KeySource:
    from ...engine.fs.encryption.key_source import KeySource

    return KeySource(file, command)
