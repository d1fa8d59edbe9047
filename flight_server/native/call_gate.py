"""Decides about each call before it gets a thread, by its headers: gRPC's processor of metadata, in native code.

gRPC asks it on the threads of its transport, when the headers of a call have arrived and nothing else. So calls that
are rejected here cost neither a thread, nor the interpreter, nor the memory of a message.

* A call whose header ``authorization`` is known to be good passes, as long as few that have passed wait for a thread
  and the interpreter; else Python is asked, which may hold it for a while. Streams from clients are counted apart: gRPC
  gives them a thread at once, but other calls only with their message.
* Python checks headers that are not known, some in each tenth of a second.
* Of all other calls, strangers, some pass in each tenth of a second, first one of each connection: Python tells them
  what is wrong, or answers what anyone may ask. Further ones are rejected with a text that lies ready.

Headers are known by a keyed hash. One that is taken for another does no harm: Python checks each call again.
"""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from .call_gate_code import CODE
from .connector_hook import INSECURE, SSL, hook
from .library import ANCHOR, Library, arrow_library
from .machine_code import compiled

UNAVAILABLE, UNAUTHENTICATED = 14, 16
_SLOTS = 1 << 13
KNOWN_MAX = _SLOTS // 2
"""The most headers that are known."""
_SLICE_BYTES, _METADATA_BYTES = 32, 96
"""Of a ``grpc_slice``, and a ``grpc_metadata``: two slices, and four words of gRPC's own."""
_SERVICE = "/arrow.flight.protocol.FlightService/"
_PATHS = {"actions": "DoAction", "puts": "DoPut", "exchanges": "DoExchange", "handshakes": "Handshake"}
"""Methods by their names in the native code. Actions may need no token, the others are streams from clients."""
_CONNECTIONS = 1 << 10
_TABLE, _SEED, _CERTIFICATES, _REJECTED, _WINDOW, _SEEN = range(6)
_REQUESTS, _STREAMS = 6, 8
"""Calls that are starting. Each is followed by its limit."""
_CHECKS, _FIRST, _FURTHER = 10, 12, 14
"""Each is followed by its limit for a tenth of a second."""
_HOLD, _CHECK, _MISSING, _BUSY, _REFUSED = range(16, 21)
_REFUSED_MAX = 16
"""Callers whose streams Python decides about, each in the word that its number names."""
_FIELDS = _REFUSED + _REFUSED_MAX
"""The words of a gate."""


class _Processor(ctypes.Structure):
    """A ``grpc_auth_metadata_processor``."""

    _fields_ = (("process", ctypes.c_void_p), ("destroy", ctypes.c_void_p), ("state", ctypes.c_void_p))


_Done = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_char_p),
)
_Hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
_Check = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p),
    *(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64),
)


class HeldCall:
    """A call that waits at the gate in gRPC's C library. End it once, by one of the methods."""

    __slots__ = ("_call", "_done", "is_stream")

    def __init__(self, done: int, call: int, is_stream: bool) -> None:
        self._done = done
        self._call = call
        self.is_stream = is_stream
        """Whether it is a stream from its client, which gets a thread at once."""

    def let_in(self) -> None:
        """Let it go on."""
        _Done(self._done)(self._call, None, 0, None, 0, 0, None)

    def reject(self, message: str) -> None:
        """End it with UNAVAILABLE and a message."""
        _Done(self._done)(self._call, None, 0, None, 0, UNAVAILABLE, message.encode())


class _Native:
    """The functions of the gates of this process."""

    def __init__(self) -> None:
        """Raises LookupError if this pyarrow lacks what they take."""
        self.hooks = hook(INSECURE), hook(SSL)
        library = Library(arrow_library("libarrow_flight"), ANCHOR)
        numbers = {
            "seed": _SEED,
            "requests": _REQUESTS,
            "streams": _STREAMS,
            "certificates": _CERTIFICATES,
            "rejected": _REJECTED,
        }
        numbers |= {"window": _WINDOW, "seen": _SEEN, "checks": _CHECKS, "first": _FIRST, "further": _FURTHER}
        numbers |= {"refused": _REFUSED, "refused_mask": _REFUSED_MAX - 1}
        numbers |= {"hold": _HOLD, "check": _CHECK, "missing": _MISSING, "busy": _BUSY}
        paths = {name: _SERVICE + method for name, method in _PATHS.items()}
        code = compiled(
            CODE.format(
                **numbers,
                **paths,
                **{f"{name}_size": len(path) for name, path in paths.items()},
                slots=_SLOTS,
                mask=_SLOTS - 1,
                connection_shift=65 - _CONNECTIONS.bit_length(),
                clock=ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value,
                metadata_bytes=_METADATA_BYTES,
                slice_bytes=_SLICE_BYTES,
                is_authenticated=library.address("grpc_auth_context_peer_is_authenticated"),
                unauthenticated=UNAUTHENTICATED,
                unavailable=UNAVAILABLE,
            )
        )
        word, number = ctypes.c_void_p, ctypes.c_uint64
        address = code.get_function_address
        self.process: int = address("process")
        # These take no lock and are short: the interpreter is not given back for them.
        self.hash = ctypes.PYFUNCTYPE(number, ctypes.c_char_p, number, number)(address("hash"))
        self.entered = ctypes.PYFUNCTYPE(ctypes.c_bool, word)(address("entered"))
        self.admits = ctypes.PYFUNCTYPE(ctypes.c_bool, word, word)(address("admits"))
        self.left = ctypes.PYFUNCTYPE(None, word)(address("left"))


@cache
def _native() -> _Native:
    return _Native()


_kept: list[Any] = []
"""What gRPC may use as long as the process lives: a server may outlive its object."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """The limits of the gate in gRPC's C library: how many calls pass it."""

    requests: int
    """Of known callers, that have passed and have no thread or interpreter yet: calls of one message."""
    streams: int
    """The same of streams from clients."""
    checks: int
    """Headers that Python checks in a tenth of a second."""
    first: int
    """Strangers in a tenth of a second that are the first on their connection."""
    further: int
    """Others."""


class CallGate:
    """The gate of one server, in native code that gRPC's C library calls before a call gets a thread. Thread safe, but
    for ``learn`` and ``forget_all``, which take turns."""

    def __init__(
        self,
        hold: Callable[[HeldCall, int], None],
        check: Callable[[bytes], bool],
        limits: GateLimits,
        trusts_certificates: bool,
        missing: str,
        busy: str,
    ) -> None:
        """``hold`` gets calls that may come later, with a number that is the same for calls of one header or one
        certified connection. ``check`` returns whether a header is good, and may ``learn`` it. ``missing`` is the text
        for strangers without a header, ``busy`` for the others.

        Raises:
            LookupError: this pyarrow lacks what it takes.
        """
        self._native = _native()
        self._hold_call, self._check_header = hold, check
        self._busy = busy
        self._fields = (ctypes.c_uint64 * _FIELDS)()
        self._address = ctypes.addressof(self._fields)
        self._starting = self._address + 8 * _REQUESTS, self._address + 8 * _STREAMS
        callbacks = _Hold(self._held), _Check(self._checked)
        texts = [ctypes.create_string_buffer(text.encode()) for text in (missing, busy)]
        seen = (ctypes.c_uint64 * _CONNECTIONS)()
        self._fields[_SEED] = secrets.randbits(64)
        self._fields[_SEEN] = ctypes.addressof(seen)
        self._fields[_CERTIFICATES] = trusts_certificates
        for place, most in zip((_REQUESTS, _STREAMS, _CHECKS, _FIRST, _FURTHER), astuple(limits), strict=True):
            self._fields[place + 1] = most
        self._fields[_HOLD], self._fields[_CHECK] = (
            ctypes.cast(each, ctypes.c_void_p).value or 0 for each in callbacks
        )
        self._fields[_MISSING], self._fields[_BUSY] = map(ctypes.addressof, texts)
        self._processor = _Processor(self._native.process, None, self._address)
        _kept.append((self._fields, callbacks, texts, seen, self._processor))
        self._tables: list[Any] = []
        self.forget_all()

    def _held(self, done: int, call: int, is_stream: int, caller: int) -> None:
        self._hold_call(HeldCall(done, call, bool(is_stream)), caller)

    def _checked(self, done: int, call: int, is_stream: int, context: int, caller: int, header: int, size: int) -> None:
        """Let a call in, or hold it, or reject it, by a header that is not known."""
        waiting = HeldCall(done, call, bool(is_stream))
        try:
            is_good = self._check_header(ctypes.string_at(header, size))
        except Exception:  # the handler of the call says what is wrong
            is_good = False
        if is_good:
            self._hold_call(waiting, caller)
        elif self._native.admits(self._address, context):
            waiting.let_in()
        else:
            waiting.reject(self._busy)

    @property
    def rejected(self) -> int:
        """How many strangers' calls were rejected here."""
        return self._fields[_REJECTED]

    def learn(self, header: bytes) -> bool:
        """Know a header from now on; return False if there is no room."""
        value = self.number_of(header)
        table, slot = self._tables[-1], value % _SLOTS
        while table[slot] not in (0, value):
            slot = (slot + 1) % _SLOTS
        if table[slot] == 0:
            if self._count >= KNOWN_MAX:
                return False
            table[slot] = value
            self._count += 1
        return True

    def number_of(self, header: bytes) -> int:
        """Return the number of callers with a header."""
        return self._native.hash(header, len(header), self._fields[_SEED])

    def hold_streams(self, caller: int) -> None:
        """Hold each stream of a caller from now on, until ``pass_streams``, or until many others are held."""
        self._fields[_REFUSED + caller % _REFUSED_MAX] = caller

    def pass_streams(self, caller: int) -> None:
        """Let streams of a caller pass again, as long as few start."""
        if self._fields[_REFUSED + caller % _REFUSED_MAX] == caller:
            self._fields[_REFUSED + caller % _REFUSED_MAX] = 0

    def forget_all(self) -> None:
        """Know no header any more."""
        table = (ctypes.c_uint64 * _SLOTS)()
        self._tables = [*self._tables[-1:], table]  # threads of gRPC may still read the one before
        self._fields[_TABLE] = ctypes.addressof(table)
        self._count = 0

    def start_another(self, is_stream: bool) -> bool:
        """Count another call that passes as starting, if there may be one of its form; return whether there may."""
        return self._native.entered(self._starting[is_stream])

    def has_started(self, is_stream: bool) -> None:
        """Count a known caller's call that passed as starting no more."""
        self._native.left(self._starting[is_stream])

    def count_anew(self, is_stream: bool) -> None:
        """Count from 0 again: some calls never start, since their clients are gone before."""
        self._fields[_STREAMS if is_stream else _REQUESTS] = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Put the gate before the one server that begins to listen in the body."""
        for each in self._native.hooks:
            each.processor.value = ctypes.addressof(self._processor)
        try:
            yield
        finally:
            for each in self._native.hooks:
                each.processor.value = 0
