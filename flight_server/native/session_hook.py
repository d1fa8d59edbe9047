"""Answers requests of a session where gRPC's messages are read, without the interpreter, if their answers are kept.

Python reads the messages of a session through a C++ object, its stream, by the stream's table of virtual functions. The
stream of a session gets a table of its own here, in which the function that reads is ours: it reads as before, looks up
the answer to the message, and writes it and reads on, or returns the message to Python. So only sessions that ask for
it are changed, and each only while its handler runs.

It answers for a short time only, which Python extends whenever it sees a request: so limits, rights and metrics of a
call are looked after as ever.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.flight as fl

from ...engine.kernels.reads.kept_answers import find_answer
from ...schemas.protocol.service import KeptAnswers
from .library import ANCHOR, Library, Memory, arrow_library, word_at
from .machine_code import compiled
from .message_hook import arrow_buffer

_LOG = logging.getLogger("nyala.flight_server")
ANSWER_BYTES_MAX = 1 << 14
"""The longest answer that is given here: each session has memory for one."""
_STREAM = "5arrow6flight9transport4grpc12_GLOBAL__N_118ExchangeDataStream"
_TABLE = f"_ZTVN{_STREAM}E"
_READ, _WRITE = f"_ZN{_STREAM}8ReadDataEPNS0_8internal10FlightDataE", f"_ZN{_STREAM}9WriteDataERKNS0_13FlightPayloadE"
_TABLE_WORDS, _WORDS_AHEAD = 12, 2
"""At least as many as the table of a stream has; so many come before its functions."""
_PAYLOAD_WORDS = 32
"""At least as many as an ``arrow::flight::FlightPayload`` has. One without anything is all zero."""
_HURRIED_NANOSECONDS, _HURRIED_MOST = 20_000, 128
"""A session whose client does not wait for its answers is a pipeline: so many requests in a row were there, each within
so short a time. C++ would answer it faster than it looks after other connections."""
_APP_METADATA = 2
"""Of a payload: the word with the pointer to the buffer of the message; the next one is its owner, none here."""
_READER_TYPE = b"22TransportMessageReaderE"
_READER_WORDS = 32
"""So many words of Arrow's reader are searched."""
_TYPE_NAME_BYTES = 128
"""At least as many as the name of a type has."""

# The words of a session: what its functions need, the payload, and the table of its stream.
_ANSWERS, _ASKER, _UNTIL, _TARGET, _BUFFER, _ANSWERED, _RECEIVED, _SENT, _NANOSECONDS, _IS_PIPELINE, _PAYLOAD = range(
    11
)
_OWN_TABLE = _PAYLOAD + _PAYLOAD_WORDS
_SESSION_WORDS = _OWN_TABLE + _TABLE_WORDS

_CODE = """
define i64 @now() uwtable {{
  %time = alloca [2 x i64]
  %clock = inttoptr i64 {clock} to ptr
  %ignored = call i32 %clock(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %long = mul i64 %seconds, 1000000000
  %result = add i64 %long, %rest
  ret i64 %result
}}

define zeroext i1 @read_data(ptr %this, ptr %data) uwtable {{
entry:
  %table = load ptr, ptr %this
  %block = getelementptr i64, ptr %table, i64 -{own_table}
  %result = alloca [2 x i64], align 16
  %read = inttoptr i64 {read} to ptr
  br label %next
next:
  %before = phi i64 [ 0, %entry ], [ %hurried, %check ]
  %asked = call i64 @now()
  %is_there = call zeroext i1 %read(ptr %this, ptr %data)
  br i1 %is_there, label %look, label %done
look:
  %began = call i64 @now()
  %waited = sub i64 %began, %asked
  %is_hurried = icmp slt i64 %waited, {hurried_nanoseconds}
  %one_more = add i64 %before, 1
  %hurried = select i1 %is_hurried, i64 %one_more, i64 0
  %is_pipeline = icmp sge i64 %hurried, {hurried_most}
  br i1 %is_pipeline, label %refuse, label %time
refuse:
  %pipeline_at = getelementptr i64, ptr %block, i64 {is_pipeline}
  store i64 1, ptr %pipeline_at
  br label %done
time:
  %until_at = getelementptr i64, ptr %block, i64 {until}
  %until = load atomic i64, ptr %until_at monotonic, align 8
  %is_over = icmp sge i64 %began, %until
  br i1 %is_over, label %done, label %open
open:
  %head_at = getelementptr i64, ptr %data, i64 1
  %head = load ptr, ptr %head_at
  %has_head = icmp ne ptr %head, null
  br i1 %has_head, label %done, label %plain
plain:
  %message_at = getelementptr i64, ptr %data, i64 3
  %message = load ptr, ptr %message_at
  %is_none = icmp eq ptr %message, null
  br i1 %is_none, label %done, label %ask
ask:
  %text_at = getelementptr i8, ptr %message, i64 16
  %text = load i64, ptr %text_at
  %length_at = getelementptr i8, ptr %message, i64 24
  %length = load i64, ptr %length_at
  %answers_at = getelementptr i64, ptr %block, i64 {answers}
  %answers = load i64, ptr %answers_at
  %asker_at = getelementptr i64, ptr %block, i64 {asker}
  %asker = load i64, ptr %asker_at
  %target_at = getelementptr i64, ptr %block, i64 {target}
  %target = load i64, ptr %target_at
  %finder = inttoptr i64 {find} to ptr
  %size = call i64 %finder(i64 %answers, i64 %asker, i64 %text, i64 %length, i64 %target, i64 {room})
  %is_missing = icmp slt i64 %size, 0
  br i1 %is_missing, label %done, label %answer
answer:
  %buffer_at = getelementptr i64, ptr %block, i64 {buffer}
  %buffer = load ptr, ptr %buffer_at
  %size_at = getelementptr i8, ptr %buffer, i64 24
  store i64 %size, ptr %size_at
  store i64 0, ptr %result
  %payload = getelementptr i64, ptr %block, i64 {payload}
  %write = inttoptr i64 {write} to ptr
  call void @count(ptr %block, i64 {received}, i64 %length)
  call void @count(ptr %block, i64 {sent}, i64 %size)
  call void @count(ptr %block, i64 {answered}, i64 1)
  call void %write(ptr sret([2 x i64]) %result, ptr %this, ptr %payload)
  %ended = call i64 @now()
  %took = sub i64 %ended, %began
  call void @count(ptr %block, i64 {nanoseconds}, i64 %took)
  %status = load i64, ptr %result
  %is_ok = icmp eq i64 %status, 0
  br i1 %is_ok, label %check, label %lost
check:
  %written_at = getelementptr i8, ptr %result, i64 8
  %written = load i8, ptr %written_at
  %is_written = icmp ne i8 %written, 0
  br i1 %is_written, label %next, label %lost
lost:
  ret i1 false
done:
  ret i1 %is_there
}}

define void @count(ptr %block, i64 %field, i64 %more) alwaysinline uwtable {{
  %at = getelementptr i64, ptr %block, i64 %field
  %before = load i64, ptr %at
  %after = add i64 %before, %more
  store i64 %after, ptr %at
  ret void
}}
"""


class _SessionCode:
    """What the sessions of this process share."""

    def __init__(self) -> None:
        """Raises LookupError if this pyarrow, or the form of the kernels, lacks what they take."""
        kernel: Any = find_answer
        find = ctypes.cast(kernel, ctypes.c_void_p).value if hasattr(kernel, "argtypes") else None
        if find is None:
            raise LookupError("the kernels are not compiled ahead of time")
        library = Library(arrow_library("libarrow_flight"), ANCHOR)
        read, write = library.address(_READ), library.address(_WRITE)
        table = library.address(_TABLE)
        words = [word_at(table + 8 * number) for number in range(_TABLE_WORDS)]
        if words.count(read) != 1 or words.count(write) != 1 or words.index(read) < _WORDS_AHEAD:
            raise LookupError("the virtual functions of a stream are laid out in another way")
        libc = ctypes.CDLL(None)
        fields = {"answers": _ANSWERS, "asker": _ASKER, "until": _UNTIL, "target": _TARGET, "buffer": _BUFFER}
        fields |= {
            "payload": _PAYLOAD,
            "answered": _ANSWERED,
            "received": _RECEIVED,
            "sent": _SENT,
            "is_pipeline": _IS_PIPELINE,
        }
        code = compiled(
            _CODE.format(
                **fields,
                nanoseconds=_NANOSECONDS,
                hurried_nanoseconds=_HURRIED_NANOSECONDS,
                hurried_most=_HURRIED_MOST,
                clock=ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value,
                find=find,
                read=read,
                write=write,
                own_table=_OWN_TABLE + _WORDS_AHEAD,
                room=ANSWER_BYTES_MAX,
            )
        )
        self.functions = table + 8 * _WORDS_AHEAD
        """What a stream points to."""
        self.table = [code.get_function_address("read_data") if word == read else word for word in words]
        self._way: _Way | None = None

    def stream_of(self, reader: fl.MetadataRecordBatchReader) -> int:
        """Return the address of the stream that a reader reads. Raises LookupError if it is not as expected."""
        if (way := self._way) is None:
            way = self._way = _way_to_stream(reader, self.functions)
        own = word_at(id(reader) + way.own)
        if word_at(own) != way.functions:
            raise LookupError("a reader of Python has another one of C++")
        stream = word_at(word_at(own + way.ahead))
        if word_at(stream) != self.functions:
            raise LookupError("a reader has its stream in another place")
        return stream


class _Way(NamedTuple):
    """The way from a reader of Python to its stream: over Arrow's reader, and the one that looks ahead, which begins
    with the pointer to the stream."""

    own: int
    """Where the reader has the pointer to Arrow's."""
    functions: int
    """What Arrow's reader points to."""
    ahead: int
    """Where Arrow's reader has the pointer to the one that looks ahead."""


def _way_to_stream(reader: fl.MetadataRecordBatchReader, functions: int) -> _Way:
    """Find the way to a stream with these functions. The objects are recognised: Arrow's reader by its type's name.
    Raises LookupError if there is none, and OSError as ``Memory``."""
    with Memory() as memory:
        for own in range(object.__basicsize__, type(reader).__basicsize__, 8):
            at = word_at(id(reader) + own)
            if not _type_name(at, memory).endswith(_READER_TYPE):
                continue
            for ahead in range(8, 8 * _READER_WORDS, 8):
                stream = memory.word_at(memory.word_at(at + ahead))
                if memory.word_at(stream) == functions:
                    return _Way(own, memory.word_at(at), ahead)
    raise LookupError("a reader does not lead to its stream")


def _type_name(at: int, memory: Memory) -> bytes:
    """Return the name of the type of a C++ object with virtual functions; empty if there is none at an address."""
    kind = memory.word_at(memory.word_at(at) - 8)
    return memory.bytes_at(memory.word_at(kind + 8), _TYPE_NAME_BYTES).partition(b"\0")[0]


_compiling = threading.Lock()
"""Sessions that begin at once wait for one code: it is never freed."""


def _session_code() -> _SessionCode | None:
    with _compiling:
        return _compiled_code()


@cache
def _compiled_code() -> _SessionCode | None:
    try:
        return _SessionCode()
    except (LookupError, OSError, RuntimeError) as error:
        _LOG.info("gets are answered by the interpreter: %s", error)
        return None


class Answered(NamedTuple):
    """Requests that C++ has answered, and the bytes of their messages."""

    requests: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    nanoseconds: int = 0


class SessionHook:
    """Answers requests of one session by C++, while its thread reads. For that thread, but for ``answered``."""

    def __init__(self, native: _SessionCode, stream: int, answers: KeptAnswers, asker: int) -> None:
        self._native, self._stream = native, stream
        self._answers = answers
        self._text = bytearray(ANSWER_BYTES_MAX)
        self._arrow = pa.py_buffer(self._text)
        self._words = words = (ctypes.c_uint64 * _SESSION_WORDS)()
        words[_ANSWERS], words[_ASKER], words[_TARGET] = answers.address, asker, self._arrow.address
        words[_BUFFER] = words[_PAYLOAD + _APP_METADATA] = arrow_buffer(self._arrow)
        words[_OWN_TABLE:] = native.table
        self._last = Answered()
        self._lock = threading.Lock()
        ctypes.c_uint64.from_address(stream).value = ctypes.addressof(words) + 8 * (_OWN_TABLE + _WORDS_AHEAD)

    def answer_until(self, moment: float) -> None:
        """Answer until a moment of the monotonic clock, in seconds; 0: nothing."""
        self._words[_UNTIL] = int(moment * 1e9)

    def is_pipeline(self) -> bool:
        """Return whether the client did not wait for its answers since the last call."""
        was, self._words[_IS_PIPELINE] = self._words[_IS_PIPELINE], 0
        return bool(was)

    def answered(self) -> Answered:
        """Return what was answered since the last call, by any thread."""
        with self._lock:
            words, last = self._words, self._last
            if words[_ANSWERED] == last.requests:
                return _NONE
            self._last = now = Answered(words[_ANSWERED], words[_RECEIVED], words[_SENT], words[_NANOSECONDS])
            return Answered(*(after - before for after, before in zip(now, last, strict=True)))

    def close(self) -> None:
        """Let the stream be as it was. Call it before the handler returns."""
        ctypes.c_uint64.from_address(self._stream).value = self._native.functions


_NONE = Answered()


def hook(reader: fl.MetadataRecordBatchReader, answers: KeptAnswers, asker: int) -> SessionHook | None:
    """Return what answers the requests of a session by C++, for the caller to close; None if that is not possible."""
    native = _session_code()
    if native is None:
        return None
    try:
        return SessionHook(native, native.stream_of(reader), answers, asker)
    except (LookupError, OSError) as error:
        _LOG.info("gets are answered by the interpreter: %s", error)
        return None
