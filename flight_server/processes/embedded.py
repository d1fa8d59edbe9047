"""The store of several processes, opened by one: for commands and programs that open its directory."""

from __future__ import annotations

from contextlib import ExitStack

from ...clients.cluster.servers import Servers
from ...clients.cluster.store import PlacedStore
from ...engine.options import StoreOptions
from ...engine.store import Store
from .layout import ProcessLayout
from .shares import shares


class PartsStore(PlacedStore):
    """The store of several processes, opened by this one: all of its parts as one."""

    def __init__(self, layout: ProcessLayout, options: StoreOptions) -> None:
        """Open the parts. Raises as ``Store.open``."""
        with ExitStack() as opened:
            parts = layout.directories()
            placement = layout.placement(len(parts))
            stores: dict[str, Store] = {}
            for name, directory in parts.items():
                own = {**shares(options, len(parts)), "placement": placement, "server": name}
                stores[name] = Store.open(directory, options.model_copy(update=own))
                opened.callback(stores[name].close)
            super().__init__(Servers(placement, known=stores))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close all parts."""
        super().close()
        self._opened.close()
