"""ChildHandle: a child process that runs statements, as its server holds it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from ...clients.sql.change.conflicts import Turns
from ...schemas.errors import InternalError, StoreError, UnavailableError, error_of
from .channel import Channel, ChannelClosedError, ChannelFrame, FrameKind
from .private_port import new_token

if TYPE_CHECKING:
    from .owner import Owner

_LOG = logging.getLogger("nyala.flight_server")
_COMMAND = (sys.executable, "-m", "nyala.flight_server.sql.child_main")
_LOOK_SECONDS = 0.05
_IDLE_SECONDS = 1.0
"""How long a statement that is not wanted any more may take to end; then its process is killed."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ChildHandle:
    """A child process that runs SQL statements, as its server holds it. One statement at a time."""

    def __init__(
        self, options: Mapping[str, Any], memory_bytes: int, spills: Path, spill_bytes: int, turns: Turns
    ) -> None:
        """Start it. ``options`` are its first frame. A statement that makes it larger by more than ``memory_bytes``, or
        its folder ``spills`` larger than ``spill_bytes``, fails, and ends it. Up to half of ``memory_bytes`` that
        statements before have left to it, which allocators keep, does not count. ``turns`` are those of all children.
        """
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        with theirs, ExitStack() as failing:
            failing.callback(self._channel.close)
            # A session of its own: Ctrl-C in a terminal is for the server.
            self._process = subprocess.Popen(
                [*_COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            failing.pop_all()
        self._memory_bytes = memory_bytes
        self._spills = spills
        self._turns = turns
        self._spill_bytes = spill_bytes
        self._first_bytes = self._own_bytes = 0
        self._tokens: dict[Owner, str] = {}
        self.transactions = 0
        """How many transactions it holds."""
        self.text = ""
        """The statement that it ran last, whose plan it has."""
        self._is_ready = False
        try:
            self._channel.send(FrameKind.REQUEST, to_json(options))
        except ChannelClosedError:
            self.kill()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def token_of(self, owner: Owner) -> str:
        """Return the token that stands for an owner at this child. Owners share none: the child keeps sessions open
        from one statement to the next, each with the rights of its token."""
        return self._tokens.setdefault(owner, new_token())

    def frames(
        self,
        request: Mapping[str, Any],
        parameters: bytes | None,
        check: Callable[[], None],
        seconds: float,
        pause_seconds: Callable[[], float],
    ) -> Iterator[ChannelFrame | None]:
        """Run a statement and yield the frames of its answer; the last one is of kind END. Yield None whenever there is
        no frame for ``pause_seconds``. ``check`` raises if nobody wants the answer any more. The time in which nobody
        asks for a frame does not count.

        The statement ends with the iterator: if it does not end by itself in a second, its process is killed.

        Raises:
            StoreError: the statement has failed; UNAVAILABLE if it takes more than ``seconds``, or too much memory.
        """
        end, is_over, turn = time.monotonic() + seconds, False, ExitStack()
        try:
            self._wait_until_ready(check)
            self._own_bytes = min(self._resident_bytes(), self._first_bytes + self._memory_bytes // 2)
            self._channel.send_json(
                FrameKind.REQUEST, **request, has_parameters=parameters is not None, awaited=self._turns.awaited()
            )
            if parameters is not None:
                self._channel.send(FrameKind.PARAMETERS, parameters)
            last = looked = time.monotonic()
            while True:
                if time.monotonic() >= end:
                    raise _too_long(seconds)
                frame = None
                if self._channel.has_frame(min(_LOOK_SECONDS, pause_seconds())):
                    frame = self._channel.receive()
                    if frame.kind is FrameKind.FAILURE:
                        is_over = True
                        raise _error(frame.json())
                    if frame.kind is FrameKind.TURN:
                        turn.enter_context(self._turns.turn(frame.json()["table"]))
                        self._channel.send_json(FrameKind.REQUEST, op="turn")
                        continue
                    is_over = frame.kind is FrameKind.END
                if not is_over and (frame is None or time.monotonic() >= looked + _LOOK_SECONDS):
                    looked = self._looked(check)
                if frame is None and time.monotonic() < last + pause_seconds():
                    continue
                last = time.monotonic()
                yield frame
                if is_over:
                    return
                end += time.monotonic() - last
                last = time.monotonic()
        except ChannelClosedError:
            is_over = True
            self.kill()
            raise self._gone() from None
        finally:
            if not is_over:
                self._end()
            turn.close()

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._channel.close()
        shutil.rmtree(self._spills, ignore_errors=True)

    def _wait_until_ready(self, check: Callable[[], None]) -> None:
        while not self._is_ready:
            if self._channel.has_frame(_LOOK_SECONDS):
                self._channel.receive()
                self._first_bytes = self._resident_bytes()
                self._is_ready = True
            else:
                check()

    def _end(self) -> None:
        """End the statement that runs."""
        end = time.monotonic() + _IDLE_SECONDS
        try:
            self._channel.send_json(FrameKind.REQUEST, op="cancel")
            while (left := end - time.monotonic()) > 0:
                if self._channel.has_frame(left) and self._channel.receive().kind in (FrameKind.END, FrameKind.FAILURE):
                    return
        except ChannelClosedError:
            pass
        self.kill()

    def _looked(self, check: Callable[[], None]) -> float:
        """Raise if the statement may not go on. Return the time."""
        check()
        self._check_memory()
        return time.monotonic()

    def _check_memory(self) -> None:
        if self._resident_bytes() - self._own_bytes > self._memory_bytes:
            self.kill()
            raise self._too_large()
        if _size(self._spills) > self._spill_bytes:
            self.kill()
            raise UnavailableError(
                f"the statement spills more than {self._spill_bytes:,} bytes (sql_spill_bytes) and was ended: select "
                "fewer rows or columns, or raise the limit"
            )

    def _resident_bytes(self) -> int:
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0

    def _too_large(self) -> UnavailableError:
        return UnavailableError(
            f"the statement needs more than {self._memory_bytes:,} bytes (sql_memory_bytes and sql_leaf_bytes) and was "
            "ended: select fewer rows or columns, or raise these limits"
        )

    def _gone(self) -> StoreError:
        code = self._process.wait()
        if code in (-signal.SIGKILL, -signal.SIGABRT):  # by the kernel, or by malloc
            return self._too_large()
        _LOG.error("a process of statements has ended with code %s", code)
        return InternalError("the process of the statement has ended: run it again")


def _size(folder: Path) -> int:
    """Return the bytes of a folder, whose files come and go meanwhile."""
    size = 0
    for parent, _, names in os.walk(folder):  # Path.rglob raises if a folder goes
        for name in names:
            with suppress(OSError):
                size += os.stat(os.path.join(parent, name)).st_size
    return size


def _too_long(seconds: float) -> UnavailableError:
    return UnavailableError(
        f"the statement takes more than {seconds:g} seconds (sql_timeout_seconds): select fewer rows, "
        "or raise the limit"
    )


def _error(told: Mapping[str, Any]) -> StoreError:
    return error_of(told["code"], told["message"], told.get("retry_after_seconds"), None, told.get("locations"))
