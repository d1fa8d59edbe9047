"""Serves a store in a bucket, and waits for it while another process has it."""

from __future__ import annotations

from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Protocol, cast

from ...engine.home.opening import home_at
from ...engine.options import StoreOptions
from ..runtime.opening import opened, warm_kernels
from ..stores.follower import Follower
from .name_server import NameServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...clients.flight.credentials import Credentials
    from ...engine.home.bucket import BucketHome
    from ...schemas.protocol.service import StoreService
    from ...schemas.store.placement import ServerIdentity
    from ..settings.settings import Settings

_HANDICAP_SECONDS = 1.0
"""How long a process lets others take a store first that it is not to prefer."""


class RunName(Protocol):
    """Runs a server process: serves what ``open_store`` returns, and then what ``process`` has."""

    def __call__(self, open_store: Callable[[], StoreService], *, process: NameServer) -> None: ...


def serve_name(settings: Settings, run: RunName, here: ServerIdentity | None, credentials: Credentials | None) -> None:
    """Run a server process for a store in a bucket: serve with ``run`` until a signal. ``credentials`` are for the
    other servers of the placement of ``here``.

    Raises:
        StoreError: the store can be opened neither now nor later.
    """
    options = settings.serve
    home = home_at(str(options.data), options.name)
    store_options = cast(StoreOptions, settings.models[StoreOptions])

    def open_store(home: BucketHome) -> StoreService:
        return opened(home, settings.store, here, credentials)

    handicap = 0.0 if options.prefer else _HANDICAP_SECONDS
    follow = partial(Follower, options=store_options) if options.replica else None
    process = NameServer(
        home, open_store, metadata.version("nyala"), store_options.lease_seconds, handicap, follow=follow
    )

    def absent() -> StoreService:
        warm_kernels()
        return process.absent

    run(absent, process=process)
