"""TLS credentials of a server whose certificates can be replaced while it runs.

gRPC has them: such credentials ask a function for a newer certificate before each handshake, and open connections stay
as they are. Arrow's server cannot be told to use them; it makes plain ones and asks those, through their table of
virtual functions, for a security connector. That entry is redirected to a few instructions of ours, which ask our
credentials instead while a server of ours begins to listen, and else do as before.

A new certificate is handed over in one word of memory, which gRPC's threads empty: they never wait for Python.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from typing import Any

from .connector_hook import SSL, hook
from .library import ANCHOR, Library, arrow_library
from .machine_code import compiled

_LOG = logging.getLogger("nyala.flight_server")
_CODE = """
define i32 @fetch(ptr %cell, ptr %config) {
  %new = atomicrmw xchg ptr %cell, i64 0 seq_cst
  %is_new = icmp ne i64 %new, 0
  br i1 %is_new, label %some, label %none
some:
  store i64 %new, ptr %config
  ret i32 1
none:
  ret i32 0
}

define i64 @exchange(ptr %cell, i64 %new) {
  %old = atomicrmw xchg ptr %cell, i64 %new seq_cst
  ret i64 %old
}
"""
"""``fetch`` is a ``grpc_ssl_server_certificate_config_callback``: it returns 1 with a new certificate, 0 without."""


class ClientCertificates(IntEnum):
    """What a server asks of clients: gRPC's numbers. All but NONE verify what a client sends."""

    NONE = 0
    OPTIONAL = 2
    REQUIRED = 4


class _Pair(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char_p), ("certificate", ctypes.c_char_p))


class _Grpc:
    """gRPC's functions, and the redirected entry."""

    def __init__(self) -> None:
        """Raises LookupError if a function is missing or the table is not as expected."""
        library = Library(arrow_library("libarrow_flight"), ANCHOR)

        def function(name: str, result: Any, *arguments: Any) -> Any:
            return ctypes.CFUNCTYPE(result, *arguments)(library.address(name))

        word, size = ctypes.c_void_p, ctypes.c_size_t
        self.new_config = function("grpc_ssl_server_certificate_config_create", word, ctypes.c_char_p, word, size)
        self.free_config = function("grpc_ssl_server_certificate_config_destroy", None, word)
        self.new_options = function(
            "grpc_ssl_server_credentials_create_options_using_config_fetcher", word, ctypes.c_int, word, word
        )
        self.new_credentials = function("grpc_ssl_server_credentials_create_with_options", word, word)
        self.chosen = hook(SSL).chosen
        code = compiled(_CODE)
        self.fetch: int = code.get_function_address("fetch")
        exchange = ctypes.CFUNCTYPE(ctypes.c_uint64, word, ctypes.c_uint64)
        self.exchange = exchange(code.get_function_address("exchange"))


@cache
def _grpc() -> _Grpc | None:
    """Return gRPC's functions; None, and log why, if this pyarrow does not have them as expected."""
    try:
        return _Grpc()
    except (LookupError, OSError) as error:
        _LOG.warning("with this version of pyarrow, a server reads new TLS certificates only when it starts: %s", error)
        return None


_listening = threading.Lock()
_kept: list[ctypes.c_uint64] = []
"""The cells of all credentials: servers may outlive the objects here."""


class TlsCredentials:
    """The credentials of one server in gRPC's C library, with certificates in PEM. Thread safe."""

    def __init__(self, clients: ClientCertificates) -> None:
        """Use ``replace`` before ``listening``: without a certificate no server can start.

        Raises:
            LookupError: this pyarrow does not have what that takes; it was logged.
        """
        grpc = _grpc()
        if grpc is None:
            raise LookupError("certificates cannot be replaced")
        self._grpc = grpc
        self._cell = ctypes.c_uint64(0)
        _kept.append(self._cell)
        options = grpc.new_options(int(clients), grpc.fetch, ctypes.addressof(self._cell))
        self._credentials: int = grpc.new_credentials(options)

    def replace(self, certificate: bytes, key: bytes, client_ca: bytes | None) -> None:
        """Use these for all connections from now on. The caller has checked them: gRPC would log what is wrong with
        them at the next connection, and keep the ones before."""
        pair = _Pair(key, certificate)
        new = self._grpc.new_config(client_ca, ctypes.addressof(pair), 1)
        if unused := self._grpc.exchange(ctypes.addressof(self._cell), new):
            self._grpc.free_config(unused)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Give these credentials to the one server that begins to listen in the body."""
        with _listening:
            self._grpc.chosen.value = self._credentials
            try:
                yield
            finally:
                self._grpc.chosen.value = 0
