"""Limits of gRPC's server that Arrow's does not pass on: streams of a connection, and threads.

gRPC asks plugins while it builds a server (``grpc::ServerBuilderPlugin``). Ours adds an argument of the server's
channels, and a quota of threads. It does nothing for servers that are not ours.

gRPC rejects what is beyond: further streams of a connection wait at the client, or are reset if it does not respect
that; a call for which there is no thread is answered RESOURCE_EXHAUSTED. Neither takes a thread or the interpreter.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from .library import ANCHOR, Library, arrow_library
from .machine_code import compiled

_LOG = logging.getLogger("nyala.flight_server")
_ADD_FACTORY = (
    "_ZN4grpc13ServerBuilder24InternalAddPluginFactoryEPFSt10unique_ptrINS_19ServerBuilderPluginESt14default_delete"
    "IS2_EEvE"
)
_SET_INT = "_ZN4grpc16ChannelArguments6SetIntERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEi"
_SET_QUOTA = "_ZN4grpc13ServerBuilder16SetResourceQuotaERKNS_13ResourceQuotaE"
_STREAMS = b"grpc.max_concurrent_streams"
_QUOTA_WORDS = 8
"""So many words of a ``grpc::ResourceQuota`` are the pointer to the quota: one of them is read."""
_CODE = """
@plugin = global i64 {table}

define void @factory(ptr sret(i8) %result) uwtable {{
  store i64 ptrtoint (ptr @plugin to i64), ptr %result
  ret void
}}

define void @name(ptr sret(i8) %result, ptr %plugin) uwtable {{
  %text = getelementptr i8, ptr %result, i64 16
  %size = getelementptr i8, ptr %result, i64 8
  store ptr %text, ptr %result
  store i64 0, ptr %size
  store i8 0, ptr %text
  ret void
}}

define void @nothing(ptr %plugin) uwtable {{
  ret void
}}

define zeroext i1 @no(ptr %plugin) uwtable {{
  ret i1 false
}}
"""
"""The plugin is a pointer to its table of virtual functions."""


@dataclass(frozen=True, slots=True)
class _Limits:
    streams: int
    threads: int


class _Text(ctypes.Structure):
    """A ``std::string`` of more than 15 characters, to be copied."""

    _fields_ = (("characters", ctypes.c_char_p), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t * 2))


class _Builder:
    """gRPC's functions, and the plugin, which is registered."""

    def __init__(self) -> None:
        """Raises LookupError if a function is missing."""
        library = Library(arrow_library("libarrow_flight"), ANCHOR)
        word = ctypes.c_void_p

        def function(name: str, result: Any, *arguments: Any) -> Any:
            return ctypes.CFUNCTYPE(result, *arguments)(library.address(name))

        self._set_int = function(_SET_INT, None, word, word, ctypes.c_int)
        self._set_quota = function(_SET_QUOTA, word, word, word)
        self._new_quota = function("grpc_resource_quota_create", word, ctypes.c_char_p)
        self._free_quota = function("grpc_resource_quota_unref", None, word)
        self._set_threads = function("grpc_resource_quota_set_max_threads", None, word, ctypes.c_int)
        add_factory = function(_ADD_FACTORY, None, word)
        callback = ctypes.CFUNCTYPE(None, word, word)
        self._update_builder, self._update_arguments = callback(self._limit_threads), callback(self._limit_streams)
        self._table = (ctypes.c_uint64 * 10)()
        self.limits: _Limits | None = None
        code = compiled(_CODE.format(table=ctypes.addressof(self._table)))
        nothing, no = code.get_function_address("nothing"), code.get_function_address("no")
        of_builder, of_arguments = (
            ctypes.cast(each, word).value or 0 for each in (self._update_builder, self._update_arguments)
        )
        # The destructor twice, name, UpdateServerBuilder, InitServer, Finish, ChangeArguments, UpdateChannelArguments,
        # has_sync_methods, has_async_methods
        name = code.get_function_address("name")
        self._table[:] = [nothing, nothing, name, of_builder, nothing, nothing, nothing, of_arguments, no, no]
        _kept.append(self)
        add_factory(code.get_function_address("factory"))

    def _limit_streams(self, _: int, arguments: int) -> None:
        if self.limits is not None:
            name = _Text(_STREAMS, len(_STREAMS), (len(_STREAMS), 0))
            self._set_int(arguments, ctypes.addressof(name), self.limits.streams)

    def _limit_threads(self, _: int, builder: int) -> None:
        if self.limits is not None:
            quota = self._new_quota(b"nyala")
            self._set_threads(quota, self.limits.threads)
            holder = (ctypes.c_uint64 * _QUOTA_WORDS)(*[quota] * _QUOTA_WORDS)
            self._set_quota(builder, ctypes.addressof(holder))
            self._free_quota(quota)  # the builder has its own reference


_kept: list[_Builder] = []
"""The plugin, kept as long as the process lives, since gRPC calls it for each server."""


@cache
def _grpc() -> _Builder | None:
    """Return gRPC's functions; None, and log why, if this pyarrow does not have them."""
    try:
        return _Builder()
    except (LookupError, OSError, RuntimeError) as error:
        _LOG.warning(
            "with this version of pyarrow, the streams of a connection and the threads have no limit: %s", error
        )
        return None


_building = threading.Lock()


@contextmanager
def limiting(streams: int, threads: int) -> Iterator[None]:
    """Give the one gRPC server that is built in the body limits that pyarrow does not offer: so many streams for each
    connection, and so many threads."""
    grpc = _grpc()
    if grpc is None:
        yield
        return
    with _building:
        grpc.limits = _Limits(streams, threads)
        try:
            yield
        finally:
            grpc.limits = None
