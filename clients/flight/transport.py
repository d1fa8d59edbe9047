"""How gRPC waits for the network in this process: on the threads that make and answer calls.

By default a few threads of gRPC's own wait for all connections, and hand each message over to the thread that wants it:
for a small request and its answer these are eight switches between threads, and half of the transport's processor time.
gRPC reads from the environment, once in a process, whether its older way is to be taken; a process that names
``GRPC_EXPERIMENTS`` itself decides for itself.

gRPC takes itself down when the last client and the last server of a process are gone. Its older way does not survive
this: a thread that waits for a socket to take the rest of a large message goes on for up to ten seconds, over memory
that was freed. So a process that has used gRPC keeps it to its end.

gRPC does not survive a fork, either way: a child that connects hangs, and may take answers of its parent.
"""

from __future__ import annotations

import ctypes
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
                "this process was forked from a process that had connected, and gRPC does not survive a fork: start "
                "processes with 'spawn' or 'forkserver', as in multiprocessing.get_context('spawn'), or connect only "
                "after the fork"
            )
        if not _process.is_prepared:
            _start()
            _process.is_prepared = True


def _start() -> None:
    """Start gRPC with its way of waiting, for as long as this process lives."""
    is_decided = _NAME in os.environ or int(pa.__version__.partition(".")[0]) > _PYARROW_MAX
    if not is_decided:
        os.environ[_NAME] = _ON_CALLING_THREADS
    try:
        client = fl.connect(_NOWHERE)  # gRPC reads the environment now; nothing is sent
    finally:
        if not is_decided:
            os.environ.pop(_NAME, None)  # it is for this process, not for those that it starts
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))  # not even the end of the interpreter closes it


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
