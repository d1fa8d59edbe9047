"""How gRPC waits for the network in this process: on the threads that make and answer calls.

By default a few threads of gRPC's own wait for all connections, and hand each message over to the thread that wants it:
for a small request and its answer these are eight switches between threads, and half of the transport's processor time.
gRPC reads from the environment, once in a process, whether its older way is to be taken; a process that names
``GRPC_EXPERIMENTS`` itself decides for itself.

gRPC does not survive a fork, either way: a child that connects hangs, and may take answers of its parent.
"""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError

_NAME = "GRPC_EXPERIMENTS"
_ON_CALLING_THREADS = "-event_engine_client,-event_engine_listener"
_PYARROW_MAX = 26
"""The last major version in which this was measured; a later one may log that it does not know the names."""
_NOWHERE = "grpc://127.0.0.1:1"


def prepare() -> None:
    """Decide how gRPC waits for the network, before this process makes the first Flight client or server; it has no
    effect if this process has used gRPC already.

    Raises:
        InvalidArgumentError: the process was forked from one that had connections.
    """
    if _process.is_prepared:
        return
    with _process.lock:
        if _process.is_lost:
            raise InvalidArgumentError(
                "this process was forked from one that had connected, and gRPC does not survive a fork: start "
                "processes by 'spawn' or 'forkserver', as in multiprocessing.get_context('spawn'), or connect only "
                "after the fork"
            )
        if not _process.is_prepared:
            _choose()
            _process.is_prepared = True


def _choose() -> None:
    if _NAME in os.environ or int(pa.__version__.partition(".")[0]) > _PYARROW_MAX:
        return
    os.environ[_NAME] = _ON_CALLING_THREADS
    try:
        fl.connect(_NOWHERE).close()  # gRPC reads it now; nothing is sent
    finally:
        os.environ.pop(_NAME, None)  # it is for this process, not for those that it starts


class _Process:
    """What this process, or the one that it was forked from, has done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_prepared = self.is_lost = False

    def forked(self) -> None:
        self.lock = threading.Lock()  # somebody may have held it
        self.is_lost |= self.is_prepared
        self.is_prepared = False


_process = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forked)
