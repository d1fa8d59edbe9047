"""Redirects where gRPC's server credentials make the security connector of a port, for servers that begin to listen.

That is an entry in the table of virtual functions of each kind of credentials. There our code does two things, while a
server of ours begins to listen: it lets other credentials make the connector (`tls_credentials`), and gives those of
the port a processor of metadata, which gRPC asks about each call (`call_gate`).
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

from .library import ANCHOR, Library, arrow_library, is_mapped, word_at
from .machine_code import compiled

SSL, INSECURE = "ssl", "insecure"
_CREATE = "create_security_connectorERKN{}11ChannelArgsE"
_PLACES = {
    SSL: ("_ZTV27grpc_ssl_server_credentials", "_ZN27grpc_ssl_server_credentials25" + _CREATE.format("9grpc_core")),
    INSECURE: (
        "_ZTVN9grpc_core25InsecureServerCredentialsE",
        "_ZN9grpc_core25InsecureServerCredentials25" + _CREATE.format("S_"),
    ),
}
"""The tables of virtual functions, and the functions in them."""
_SET_PROCESSOR = "_ZN23grpc_server_credentials27set_auth_metadata_processorERK28grpc_auth_metadata_processor"
_ENTRIES_MAX = 16
"""Virtual functions that a table may have before ours."""
_READ, _READ_WRITE = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
_CODE = """
@chosen = global i64 0
@processor = global i64 0

define void @create_security_connector(ptr sret(i8) %result, ptr %this, ptr %arguments) uwtable {{
  %given = load atomic i64, ptr @processor seq_cst, align 8
  %is_given = icmp ne i64 %given, 0
  br i1 %is_given, label %process, label %connect
process:
  %processor = inttoptr i64 %given to ptr
  %set = inttoptr i64 {set_processor} to ptr
  call void %set(ptr %this, ptr %processor)
  br label %connect
connect:
  %own = load atomic i64, ptr @chosen seq_cst, align 8
  %is_ours = icmp ne i64 %own, 0
  %ours = inttoptr i64 %own to ptr
  %credentials = select i1 %is_ours, ptr %ours, ptr %this
  %original = inttoptr i64 {original} to ptr
  call void %original(ptr sret(i8) %result, ptr %credentials, ptr %arguments)
  ret void
}}
"""


class ConnectorHook:
    """The redirected entry of one kind of credentials in gRPC's C library. The cells are for servers that begin to
    listen now."""

    def __init__(self, kind: str) -> None:
        """Raises LookupError if the table is not as expected."""
        library = Library(arrow_library("libarrow_flight"), ANCHOR)
        table, original = (library.address(symbol) for symbol in _PLACES[kind])
        entries = [table + 8 * number for number in range(2, _ENTRIES_MAX)]  # after the offset and the type
        found = [entry for entry in entries if is_mapped(entry) and word_at(entry) == original]
        if len(found) != 1:
            raise LookupError(f"the virtual functions of gRPC's {kind} server credentials are laid out in another way")
        code = compiled(_CODE.format(original=original, set_processor=library.address(_SET_PROCESSOR)))
        self.chosen = self._cell(code, "chosen")
        """The address of the credentials that make the connector; 0: those of the port."""
        self.processor = self._cell(code, "processor")
        """The address of the ``grpc_auth_metadata_processor`` that the port gets; 0: none."""
        _overwrite(found[0], code.get_function_address("create_security_connector"))

    @staticmethod
    def _cell(code: Any, name: str) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(code.get_global_value_address(name))


@cache
def hook(kind: str) -> ConnectorHook:
    """Return the native hook of a kind of gRPC's credentials, ``SSL`` or ``INSECURE``, for this process. Raises
    LookupError if this pyarrow lacks what it takes."""
    return ConnectorHook(kind)


def _overwrite(address: int, value: int) -> None:
    """Write a word into memory that may be read-only since the library was loaded."""
    if is_mapped(address, writable=True):
        ctypes.c_uint64.from_address(address).value = value
        return
    page = ctypes.c_void_p(address & -mmap.PAGESIZE)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(page, mmap.PAGESIZE, _READ_WRITE):
        raise LookupError("the system does not let memory of a library be written to")
    ctypes.c_uint64.from_address(address).value = value
    protect(page, mmap.PAGESIZE, _READ)
