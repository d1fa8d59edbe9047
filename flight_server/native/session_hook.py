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
from .session_hook_code import CODE

_LOG = logging.getLogger("nyala.flight_server")
ANSWER_BYTES_MAX = 1 << 14
"""The longest answer that is given here: each session has memory for one."""
REQUEST_BYTES_MAX = 1 << 16
"""The longest request that another thread answers."""
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
_ANSWERS, _ASKER, _UNTIL, _TARGET, _BUFFER, _ANSWERED, _RECEIVED, _SENT, _NANOSECONDS, _IS_PIPELINE = range(10)
_GETS, _WRITES, _SCANS, _COUNTED, _TEXT, _LENGTH, _SIZE, _NEXT, _ASKED, _SETTLED, _TURN = range(10, 21)
"""The queues for gets, writes and scans, or 0; and where the request that runs is counted. Of a request that waits in a
queue: its message; the bytes of the answer, or a number below 0; the request that came before it, and waits too; how
many have waited, and how many of them are over; and the semaphore that ends the wait for the answer."""
_SEMAPHORE_WORDS = 4
"""As many as a ``sem_t`` has."""
_PAYLOAD = _TURN + _SEMAPHORE_WORDS
_OWN_TABLE = _PAYLOAD + _PAYLOAD_WORDS
_SESSION_WORDS = _OWN_TABLE + _TABLE_WORDS
_FIELDS = {
    "answers": _ANSWERS,
    "asker": _ASKER,
    "until": _UNTIL,
    "target": _TARGET,
    "buffer": _BUFFER,
    "answered": _ANSWERED,
    "received": _RECEIVED,
    "sent": _SENT,
    "nanoseconds": _NANOSECONDS,
    "is_pipeline": _IS_PIPELINE,
    "gets": _GETS,
    "writes": _WRITES,
    "scans": _SCANS,
    "counted": _COUNTED,
    "text": _TEXT,
    "length": _LENGTH,
    "size": _SIZE,
    "next": _NEXT,
    "asked": _ASKED,
    "settled": _SETTLED,
    "turn": _TURN,
    "payload": _PAYLOAD,
}
_RUNNING = 1 + _SEMAPHORE_WORDS
"""Where a queue counts the requests that run: in the queue, and on the threads of their sessions. A request alone stays
there."""
_UNANSWERED, _RETURNED = -2, -1
"""Instead of the bytes of an answer: there is none yet; Python shall answer on the thread of the session."""
_GET_BEGIN, _WRITE_BEGIN, _SCAN_BEGIN = b'{"get"', b'{"writ', b'{"scan'
"""So begin the requests that another thread may answer: with as many bytes each."""


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
        code = compiled(
            CODE.format(
                **_FIELDS,
                hurried_nanoseconds=_HURRIED_NANOSECONDS,
                hurried_most=_HURRIED_MOST,
                write_begin=int.from_bytes(_WRITE_BEGIN, "little"),
                scan_begin=int.from_bytes(_SCAN_BEGIN, "little"),
                request_room=REQUEST_BYTES_MAX,
                begin_mask=(1 << 8 * len(_GET_BEGIN)) - 1,
                get_begin=int.from_bytes(_GET_BEGIN, "little"),
                unanswered=_UNANSWERED,
                running=_RUNNING,
                clock=_address_in_libc("clock_gettime"),
                sem_post=_address_in_libc("sem_post"),
                sem_wait=_address_in_libc("sem_wait"),
                sem_trywait=_address_in_libc("sem_trywait"),
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
        self.take = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.get_function_address("take"))
        self.ring = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(_address_in_libc("sem_post"))
        self.answer = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(code.get_function_address("answer"))
        """Ends the wait of a request, without giving the interpreter away."""
        self.leave = ctypes.PYFUNCTYPE(None, ctypes.c_int64)(code.get_function_address("leave"))
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


def _address_in_libc(name: str) -> int:
    """Return the address of a function of the C library. Raises LookupError if it has none of this name."""
    function: Any = getattr(ctypes.CDLL(None), name, None)
    if function is None:
        raise LookupError(f"the C library has no {name}")
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class RequestQueue:
    """The requests of sessions that wait for an answer by the thread that takes them. Thread safe."""

    def __init__(self, native: _SessionCode) -> None:
        self._native = native
        self._words = (ctypes.c_uint64 * (_RUNNING + 1))()
        _prepare_semaphore(ctypes.addressof(self._words) + 8)
        self._is_closed = False

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def take(self) -> list[int]:
        """Wait for requests, and return the numbers of their sessions in the order in which they came; none: the queue
        is closed."""
        numbers: list[int] = []
        while not numbers and not self._is_closed:
            number = self._native.take(self.address)
            while number > 0:
                numbers.append(number)
                number = word_at(number + 8 * _NEXT)
        numbers.reverse()
        return numbers

    def close(self) -> None:
        """Let nobody wait in ``take``."""
        self._is_closed = True
        self._native.ring(self.address + 8)


class Queues(NamedTuple):
    """The queues for the requests of a session, by their kind; None: Python answers on the thread of the session."""

    gets: RequestQueue | None = None
    writes: RequestQueue | None = None
    scans: RequestQueue | None = None


NO_QUEUES = Queues()


def _prepare_semaphore(address: int) -> None:
    """Make a semaphore that nobody has rung."""
    ctypes.CDLL(None).sem_init(ctypes.c_void_p(address), 0, 0)


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
        _LOG.info("gets are answered by Python, not by compiled code: %s", error)
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
        _prepare_semaphore(ctypes.addressof(words) + 8 * _TURN)
        self.number = ctypes.addressof(words)
        """That of the session in a ``RequestQueue``."""
        self._last = Answered()
        self._lock = threading.Lock()
        ctypes.c_uint64.from_address(stream).value = ctypes.addressof(words) + 8 * (_OWN_TABLE + _WORDS_AHEAD)

    def answer_until(self, moment: float) -> None:
        """Answer until a moment of the monotonic clock, in seconds; 0: nothing."""
        self._words[_UNTIL] = int(moment * 1e9)

    def ask(self, queues: Queues) -> None:
        """Let whoever takes requests from a queue answer those of its kind from now on."""
        for field, queue in zip((_GETS, _WRITES, _SCANS), queues, strict=True):
            self._words[field] = 0 if queue is None else queue.address

    def is_waiting(self) -> bool:
        """Return whether a request waits in a queue, or is being answered by whoever took it."""
        return ctypes.c_int64(self._words[_SIZE]).value == _UNANSWERED

    def carried_out(self) -> tuple[int, int]:
        """Return how many requests were put into queues, and how many of them are over: their answers are sent, or the
        thread of the session has answered them."""
        settled = self._words[_SETTLED]
        return self._words[_ASKED], settled

    def message(self) -> bytes:
        """Return the request that waits in a queue."""
        return ctypes.string_at(self._words[_TEXT], self._words[_LENGTH])

    def message_bytes(self) -> int:
        """Return the size of the request that waits in a queue."""
        return self._words[_LENGTH]

    def answer(self, answer: bytes | None) -> None:
        """Answer the request that waits in a queue, by the thread of its session; None: let Python do so there. At most
        ``ANSWER_BYTES_MAX``."""
        if answer is None:
            self._native.answer(self.number, _RETURNED)
        else:
            self._text[: len(answer)] = answer
            self._native.answer(self.number, len(answer))

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
        self._native.leave(self.number)


_NONE = Answered()


def request_queue() -> RequestQueue | None:
    """Return a queue for requests of sessions; None if that is not possible."""
    native = _session_code()
    return None if native is None else RequestQueue(native)


def hook(reader: fl.MetadataRecordBatchReader, answers: KeptAnswers, asker: int) -> SessionHook | None:
    """Return what answers the requests of a session by C++, for the caller to close; None if that is not possible."""
    native = _session_code()
    if native is None:
        return None
    try:
        return SessionHook(native, native.stream_of(reader), answers, asker)
    except (LookupError, OSError) as error:
        _LOG.info("gets are answered by Python, not by compiled code: %s", error)
        return None
