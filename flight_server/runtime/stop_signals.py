"""StopSignals: SIGTERM, SIGINT and SIGHUP, heard whatever the main thread does."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable

_LOG = logging.getLogger("nyala.flight_server")
STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """SIGTERM and SIGINT: the first asks to stop, the second to stop at once.

    Python runs signal handlers on the main thread, between two instructions. A main thread that sleeps in a lock never
    gets there if the system delivered the signal to another thread, or just before the main thread fell asleep. So the
    handler does nothing, and a thread reads the signal's number, which the interpreter writes into a socket as soon as
    a signal arrives on any thread (``signal.set_wakeup_fd``).
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._received_count = 0
        self._asked: Callable[[], None] = lambda: None
        self._in_a_hurry: Callable[[], None] = lambda: None
        self._hung_up: Callable[[], None] = lambda: None

    def install(self) -> StopSignals:
        """Install the handlers; only the main thread may."""
        heard, woken = socket.socketpair()
        woken.setblocking(False)  # set_wakeup_fd requires it
        threading.Thread(target=self._listen, args=(heard, woken), name="nyala-signals", daemon=True).start()
        signal.set_wakeup_fd(woken.fileno())
        for number in STOPPING:
            signal.signal(number, lambda *_: None)
        return self

    def wait(self) -> None:
        """Return when the first signal has arrived."""
        self._stop.wait()

    def on_first(self, asked: Callable[[], None]) -> None:
        """Call ``asked`` when the first signal arrives, on any thread."""
        self._asked = asked

    def on_second(self, hurry: Callable[[], None]) -> None:
        """Call ``hurry`` when a second signal arrives, or at once if it has."""
        self._in_a_hurry = hurry
        if self._received_count > 1:
            hurry()

    def on_hangup(self, act: Callable[[], None]) -> None:
        """Call ``act`` at each SIGHUP, which otherwise ends the process; only the main thread may."""
        self._hung_up = act
        signal.signal(signal.SIGHUP, lambda *_: None)

    def ignore(self) -> None:
        """Ignore further signals: all is done, and a signal would kill the interpreter while it exits."""
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)

    def _listen(self, heard: socket.socket, woken: socket.socket) -> None:
        """Read signal numbers for ever; ``woken`` is kept open for the interpreter."""
        while numbers := heard.recv(64):
            for number in numbers:
                if number in STOPPING:
                    self._received()
                elif number == signal.SIGHUP:
                    try:
                        self._hung_up()
                    except Exception:  # this thread must go on, or nothing would stop the server
                        _LOG.exception("SIGHUP failed")
        woken.close()

    def _received(self) -> None:
        self._received_count += 1
        if self._received_count == 1:
            self._asked()
        else:
            self._in_a_hurry()
        self._stop.set()
