"""Headers of a call that say something about an ingest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.flight as fl

MIDDLEWARE = "nyala-sql"
_PREFIX = "x-nyala-"
_BYTES_MAX = 4096


class SqlHeaders(fl.ServerMiddlewareFactory):
    """Keeps the headers of each call whose names begin with ``x-nyala-``."""

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> Any:
        """Called by pyarrow for each call, before anything else."""
        mine = {
            name.lower(): str(values[0])[:_BYTES_MAX]
            for name, values in headers.items()
            if name.lower().startswith(_PREFIX)
        }
        return _Of(mine) if mine else None


class _Of(fl.ServerMiddleware):
    def __init__(self, values: dict[str, str]) -> None:
        super().__init__()
        self.values = values


def of_call(context: fl.ServerCallContext) -> dict[str, str]:
    """Return the headers of a call, by their names in lower case."""
    middleware = context.get_middleware(MIDDLEWARE)
    return middleware.values if isinstance(middleware, _Of) else {}
