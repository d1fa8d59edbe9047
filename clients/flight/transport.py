"""How gRPC waits for the network in this process: on the threads that make and answer calls.

By default a few threads of gRPC's own wait for all connections, and hand each message over to the thread that wants it:
for a small request and its answer these are eight switches between threads, and half of the transport's processor time.
gRPC reads from the environment, once in a process, whether its older way is to be taken; a process that names
``GRPC_EXPERIMENTS`` itself decides for itself.
"""

from __future__ import annotations

import os
from functools import cache

import pyarrow as pa
import pyarrow.flight as fl

_NAME = "GRPC_EXPERIMENTS"
_ON_CALLING_THREADS = "-event_engine_client,-event_engine_listener"
_PYARROW_MAX = 26
"""The last major version in which this was measured; a later one may log that it does not know the names."""
_NOWHERE = "grpc://127.0.0.1:1"


@cache
def prepare() -> None:
    """Decide it, before the first client or server; it has no effect if this process has used gRPC already."""
    if _NAME in os.environ or int(pa.__version__.partition(".")[0]) > _PYARROW_MAX:
        return
    os.environ[_NAME] = _ON_CALLING_THREADS
    try:
        fl.connect(_NOWHERE).close()  # gRPC reads it now; nothing is sent
    finally:
        del os.environ[_NAME]  # it is for this process, not for those that it starts
