"""Inspects each Flight message before Arrow decodes it: while a decompression bomb is still small.

``FlightData::OpenMessage`` calls ``arrow::ipc::Message::Open(metadata, body)`` through an import slot of
libarrow_flight. The slot is redirected to a few instructions of ours, which ask Python first; a rejected message is
replaced by 16 bytes that are not a message, which Arrow then rejects itself. Python is asked on the reading thread,
inside ``read_chunk``, so the reader sets the check with ``inspecting``; messages of other threads pass unchecked.

Arrow's server reads the first message of a stream, its schema, before it calls the handler, and answers itself if that
is malformed. So a malformed one is replaced by a schema without columns, and the handler, which is called next on the
same thread, raises the error by ``check_first_message``.

The instructions are LLVM code, since calling conventions for results in memory differ between processors.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from .library import ANCHOR, Library, Memory, arrow_library, exported, is_mapped, word_at
from .machine_code import compiled

Inspect = Callable[[memoryview, memoryview], None]
"""Takes the head and the body of a message; raises to reject it."""

_LOG = logging.getLogger("nyala.flight_server")
_OPEN = "_ZN5arrow3ipc7Message4OpenESt10shared_ptrINS_6BufferEES4_"
_CONTINUATION = 0xFFFFFFFF
_NO_MESSAGE = b"\xff" * 16
_DATA, _SIZE = 16, 24
"""Offsets in ``arrow::Buffer`` of the address and the number of its bytes."""
_CODE = """
define void @open_message(ptr sret(i8) %result, ptr %head, ptr %body) uwtable {{
  %inspect = inttoptr i64 {inspect} to ptr
  %open = inttoptr i64 {open} to ptr
  %verdict = call i32 %inspect(ptr %head, ptr %body)
  %is_refused = icmp ne i32 %verdict, 0
  br i1 %is_refused, label %refuse, label %pass
pass:
  call void %open(ptr sret(i8) %result, ptr %head, ptr %body)
  ret void
refuse:
  %is_first = icmp eq i32 %verdict, 2
  %buffer = select i1 %is_first, i64 {empty_schema}, i64 {no_message}
  %none = alloca [2 x i64]
  %owner = getelementptr i64, ptr %none, i64 1
  store i64 %buffer, ptr %none
  store i64 0, ptr %owner
  call void %open(ptr sret(i8) %result, ptr %none, ptr %body)
  ret void
}}
"""


class _Reader(threading.local):
    inspect: Inspect | None = None
    refusal: BaseException | None = None


_reader = _Reader()
_first_refusals: dict[int, str] = {}
"""The error in the first message of the stream whose handler is called next, by thread. Thread-local data would be
lost: until the handler is called, a transport thread is a new one to Python each time."""


class inspecting:
    """Show ``inspect`` the Flight messages that this thread reads in the body, before Arrow decodes them, and raise its
    errors from the body.

    Without the hook it sees none. It may be used again. (A generator would cost three times as much.)
    """

    __slots__ = ("_inspect",)

    def __init__(self, inspect: Inspect) -> None:
        self._inspect = inspect

    def __enter__(self) -> None:
        _reader.inspect = self._inspect

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        refusal = _reader.refusal
        _reader.inspect = _reader.refusal = None
        if error is not None and refusal is not None:
            raise refusal from None


@cache
def install() -> bool:
    """Redirect the import slot through which Arrow's Flight library opens messages, once for this process; return
    False, and log why, if that is not possible."""
    try:
        _install()
    except (LookupError, OSError, RuntimeError) as error:
        _LOG.warning(
            "with this version of pyarrow, compressed batches are decoded before their size is checked: %s", error
        )
        return False
    return True


def _install() -> None:
    slot = Library(arrow_library("libarrow_flight"), ANCHOR).import_slot(_OPEN)
    if not is_mapped(slot, writable=True):
        raise LookupError("the import slot is read-only")  # a library linked with full RELRO
    open_message = exported(arrow_library("libarrow"), _OPEN)
    none, empty = pa.py_buffer(_NO_MESSAGE), pa.ipc.read_message(pa.schema([]).serialize()).metadata
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_ask)
    buffers = {"no_message": arrow_buffer(none), "empty_schema": arrow_buffer(empty)}
    code = _CODE.format(inspect=_address(callback), open=open_message, **buffers)
    _kept.extend((none, empty, callback))
    ctypes.c_uint64.from_address(slot).value = compiled(code).get_function_address("open_message")


_kept: list[Any] = []
"""Objects that the code refers to; kept as long as the process lives."""


def _ask(head: int, body: int) -> int:
    """Check a message for the native code, which passes pointers to two ``shared_ptr<Buffer>``. Return 0 to accept it,
    1 to reject it, 2 to reject it as a first message. Raises nothing."""
    inspect = _reader.inspect
    if inspect is None:
        return 2 if _is_of_server() and not _is_schema(_view(head)) else 0
    try:
        inspect(_view(head), _view(body))
    except BaseException as error:
        _reader.refusal = error
        return 1
    return 0


def check_first_message() -> None:
    """Check that the stream whose handler has just been called on this thread began with a schema.

    Raises:
        InvalidArgumentError: it did not.
    """
    why = _first_refusals.pop(threading.get_ident(), None)
    if why is not None:
        raise InvalidArgumentError(f"the stream does not begin with a valid Arrow schema: {why}")


def _is_of_server() -> bool:
    """Return whether no Python runs on this thread yet: clients in this process call from Python."""
    try:
        sys._getframe(2)
    except ValueError:
        return True
    return False


def _is_schema(head: memoryview) -> bool:
    _first_refusals.pop(threading.get_ident(), None)
    if not head:
        return True  # a message without a batch
    padding = bytes(-len(head) % 8)
    message = struct.pack("<Ii", _CONTINUATION, len(head) + len(padding)) + head + padding
    try:
        pa.ipc.read_schema(pa.py_buffer(message))
    except (pa.ArrowException, OSError) as error:
        _first_refusals[threading.get_ident()] = str(error).partition("\n")[0]
        return False
    return True


def _view(pointer: int) -> memoryview:
    buffer = word_at(pointer)
    if not buffer:
        return memoryview(b"")
    size = word_at(buffer + _SIZE)
    return (
        memoryview((ctypes.c_char * size).from_address(word_at(buffer + _DATA))).cast("B") if size else memoryview(b"")
    )


def arrow_buffer(buffer: pa.Buffer) -> int:
    """Return the address of a Python object's ``arrow::Buffer``, after checking its layout."""
    with Memory() as memory:
        for offset in range(object.__basicsize__, type(buffer).__basicsize__ - 16, 8):
            # The object holds a pointer to the C++ object and one to its owner.
            found = word_at(id(buffer) + offset)
            if memory.word_at(found + _DATA) == buffer.address:
                if memory.word_at(found + _SIZE) != buffer.size:
                    break
                return found
    raise LookupError("an arrow::Buffer is laid out in another way")


def _address(callback: Any) -> int:
    return ctypes.cast(callback, ctypes.c_void_p).value or 0
