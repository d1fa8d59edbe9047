"""A look at each Flight message before Arrow decodes it: the one moment when a decompression bomb is still small.

``FlightData::OpenMessage`` calls ``arrow::ipc::Message::Open(metadata, body)`` through an import slot of
libarrow_flight. The slot is turned to a few instructions of our own, which ask Python first; a message that is refused
is exchanged for 16 bytes that are no message, which Arrow rejects by itself. Python is asked on the thread that reads,
inside ``read_chunk``, so whoever reads says what to ask by ``inspecting``; other threads' messages pass unseen.

Arrow's server reads the first message of a stream, its schema, before it calls the handler, and answers for itself
where that is broken. So a broken one is exchanged for a schema without columns, and the handler, which is called next
on the same thread, raises what is wrong by ``check_first_message``.

The instructions are LLVM, as the calling convention for results in memory differs between processors.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa
from llvmlite import binding as llvm

from ...schemas.errors import InvalidArgumentError
from .library import Library, arrow_library, exported, is_mapped, word_at

Inspect = Callable[[memoryview, memoryview], None]
"""Takes the head and the body of a message; raises to refuse it."""

_LOG = logging.getLogger("nyala.flight_server")
_OPEN = "_ZN5arrow3ipc7Message4OpenESt10shared_ptrINS_6BufferEES4_"
_ANCHOR = "_ZN5arrow6flight8internal10FlightData11OpenMessageEv"
_CONTINUATION = 0xFFFFFFFF
_NO_MESSAGE = b"\xff" * 16
_DATA, _SIZE = 16, 24
"""Where an ``arrow::Buffer`` has the address and the number of its bytes."""
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
"""What is wrong with the first message of the stream whose handler is called next, by thread: until the handler is
called, a thread of the transport is a new one to Python each time, and what is local to it is lost."""


@contextmanager
def inspecting(inspect: Inspect) -> Iterator[None]:
    """Show ``inspect`` the messages that this thread reads in the body. What it raised comes out of the body.

    Without the hook it sees none.
    """
    _reader.inspect = inspect
    try:
        yield
    except BaseException:
        if (refusal := _reader.refusal) is None:
            raise
        raise refusal from None
    finally:
        _reader.inspect = _reader.refusal = None


@cache
def install() -> bool:
    """Turn the slot, once for this process and for good; return False, and log why, where that is not possible."""
    try:
        _install()
    except (LookupError, OSError, RuntimeError) as error:
        _LOG.warning("with this pyarrow, compressed batches are decoded before their size is checked: %s", error)
        return False
    return True


def _install() -> None:
    slot = Library(arrow_library("libarrow_flight"), _ANCHOR).import_slot(_OPEN)
    if not is_mapped(slot, writable=True):
        raise LookupError("the import slot is read-only")  # a library that is linked with full RELRO
    open_message = exported(arrow_library("libarrow"), _OPEN)
    none, empty = pa.py_buffer(_NO_MESSAGE), pa.ipc.read_message(pa.schema([]).serialize()).metadata
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_ask)
    buffers = {"no_message": _arrow_buffer(none), "empty_schema": _arrow_buffer(empty)}
    code = _CODE.format(inspect=_address(callback), open=open_message, **buffers)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(code)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    _kept.extend((none, empty, callback, engine))
    ctypes.c_uint64.from_address(slot).value = engine.get_function_address("open_message")


_kept: list[Any] = []
"""What the code refers to, for as long as the process lives."""


def _ask(head: int, body: int) -> int:
    """Called by the code for each message: pointers to two ``shared_ptr<Buffer>``. Raises nothing; 1 is a refusal,
    and 2 that of a first message."""
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
    """See that the stream whose handler has just been called on this thread began with a schema.

    Raises:
        InvalidArgumentError: it did not.
    """
    why = _first_refusals.pop(threading.get_ident(), None)
    if why is not None:
        raise InvalidArgumentError(f"the stream does not begin with a valid Arrow schema: {why}")


def _is_of_server() -> bool:
    """Whether no Python runs on this thread yet: clients in this process call from some."""
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


def _arrow_buffer(buffer: pa.Buffer) -> int:
    """Return the address of the ``arrow::Buffer`` of a Python object, and see that it is laid out as we read it."""
    for offset in range(object.__basicsize__, type(buffer).__basicsize__ - 16, 8):
        found = word_at(id(buffer) + offset)
        # The object keeps a pointer to the C++ object and one to its owner.
        if not (is_mapped(found + _DATA) and is_mapped(found + _SIZE)):
            continue
        if word_at(found + _DATA) == buffer.address:
            if word_at(found + _SIZE) != buffer.size:
                break
            return found
    raise LookupError("an arrow::Buffer is laid out in another way")


def _address(callback: Any) -> int:
    return ctypes.cast(callback, ctypes.c_void_p).value or 0
