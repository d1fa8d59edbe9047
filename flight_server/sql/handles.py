"""Handles: the prepared statements and the transactions that clients have open, each known to its owner alone."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, UnavailableError
from .owner import Owner

if TYPE_CHECKING:
    from ..security.identity import Identity
    from .statement_child import ChildHandle

PREPARED_MAX = 4096
PREPARED_BYTES_MAX = 64 << 20
TRANSACTIONS_MAX = 256
TRANSACTION_SECONDS = 600.0
"""A transaction in which no statement runs for so long is rolled back."""


@dataclass(slots=True)
class Prepared:
    """A prepared statement of Flight SQL."""

    owner: Owner
    text: str
    schema: pa.Schema | None
    """Of its rows; None: it changes rows."""
    parameters: bytes | None = None
    """What it is bound to, as a stream of Arrow IPC; None: to nothing."""
    transaction: bytes | None = None
    varies: bool = False
    """Whether the schema depends on the types of parameters."""

    @property
    def nbytes(self) -> int:
        """What it takes of memory."""
        return len(self.text) + 100 * len(self.schema or ()) + len(self.parameters or b"")


@dataclass(slots=True)
class OpenTransaction:
    """A transaction of Flight SQL, and the child process that holds it."""

    owner: Owner
    caller: Identity | None
    child: ChildHandle
    lock: threading.Lock = field(default_factory=threading.Lock)
    used: float = field(default_factory=time.monotonic)
    """When its last statement ended."""
    running: int = 0
    """How many of its statements run, or wait for its child."""

    @property
    def nbytes(self) -> int:
        """What it takes of memory here: next to nothing."""
        return 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the body be one of its statements."""
        with self.lock:
            self.running += 1
        try:
            yield
        finally:
            with self.lock:
                self.running -= 1
                self.used = time.monotonic()

    def is_idle(self, seconds: float) -> bool:
        """Whether no statement has run for so long."""
        return not self.running and self.used < time.monotonic() - seconds


Held = TypeVar("Held", Prepared, OpenTransaction)


class Handles(Generic[Held]):
    """What clients of Flight SQL hold by a handle. Half of the places, and of the bytes, are for one user. Thread
    safe."""

    def __init__(self, name: str, count_max: int, bytes_max: int = 1 << 62) -> None:
        """``name`` says in errors what they are."""
        self._name = name
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._held: dict[bytes, Held] = {}
        self._lock = threading.Lock()

    def add(self, held: Held) -> bytes:
        """Keep something, and return its handle.

        Raises:
            UnavailableError: its user, or all users together, have too many, or their bytes are too many.
            InvalidArgumentError: it alone has more bytes than a user may have.
        """
        handle = secrets.token_bytes(16)
        with self._lock:
            count = sum(each.owner.user == held.owner.user for each in self._held.values())
            if count >= self._count_max // 2 or len(self._held) >= self._count_max:
                raise UnavailableError(f"too many {self._name}s are open: close some of them")
            self._check_bytes(held, None)
            self._held[handle] = held
        return handle

    def replace(self, handle: bytes, held: Held) -> None:
        """Keep something by a handle of its owner's, in the place of the former thing, which stays after an error.
        Raises as ``get`` and ``add``."""
        with self._lock:
            self._check_bytes(held, self.get(handle, held.owner))
            self._held[handle] = held

    def _check_bytes(self, held: Held, former: Held | None) -> None:
        """Check that there is memory for something in the place of the former."""
        name, most = f"the open {self._name}s, with their parameters,", self._bytes_max // 2
        if held.nbytes > most:
            raise InvalidArgumentError(
                f"{name} may have at most {most:,} bytes for each user: send less, or ingest the rows"
            )
        others = [each for each in self._held.values() if each is not former]
        if held.nbytes + sum(each.nbytes for each in others if each.owner.user == held.owner.user) > most:
            raise UnavailableError(
                f"{name} may have at most {most:,} bytes for each user: close some of them, or send less"
            )
        if held.nbytes + sum(each.nbytes for each in others) > self._bytes_max:
            raise UnavailableError(
                f"{name} of all users would have more than {self._bytes_max:,} bytes: try again later"
            )

    def get(self, handle: bytes, owner: Owner) -> Held:
        """Return what a handle stands for. Raises InvalidArgumentError if it stands for nothing of this owner's."""
        held = self._held.get(handle)
        if held is not None and held.owner != owner and held.owner.user == owner.user:
            raise InvalidArgumentError(
                f"the {self._name} was made with a token of other roles: use that token, or make a new {self._name}"
            )
        if held is None or held.owner != owner:
            raise InvalidArgumentError(
                f"there is no such {self._name}: it was closed, or the server has started again; make it again"
            )
        return held

    def __contains__(self, handle: object) -> bool:
        return handle in self._held

    def pop(self, handle: bytes, owner: Owner) -> Held:
        """Return what a handle stands for, and forget it. Raises as ``get``: of several callers one has it."""
        with self._lock:
            held = self.get(handle, owner)
            del self._held[handle]
        return held

    def items(self) -> list[tuple[bytes, Held]]:
        """Return all, with their handles."""
        with self._lock:
            return list(self._held.items())
