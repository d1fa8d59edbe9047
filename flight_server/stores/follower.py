"""Follower: keeps a replica at the end of the log, as a standby sees it, on a thread of its own."""

from __future__ import annotations

import logging

from ...engine import threads
from ...engine.home.bucket import BucketHome
from ...engine.options import StoreOptions
from ...engine.replica.slots import SlotReplica
from ...engine.replica.source import OtherHistoryError
from ...engine.wal.slots.standby import Standby
from ...schemas.errors import StoreError, UnavailableError

_LOG = logging.getLogger("nyala.flight_server")
_LOOK_SECONDS = 0.1
"""How often to look at what the standby knows, if nothing of it moves."""
_RETRY_SECONDS = 0.5
"""After the log could not be followed."""
_LEAVE_SECONDS = 1.0
"""How long a claim waits for the thread to let the memory of its replica go."""


class Follower:
    """Keeps the replica that a standby serves at the end of the log: one wait for a store, during which it can be read.
    It asks the bucket for no slot that the standby does not ask for, and ends when the standby has the log, or ``stop``
    is called."""

    def __init__(self, home: BucketHome, standby: Standby, options: StoreOptions) -> None:
        """``home`` is that of the standby, whose ``take`` is called by somebody else, and locks the cache."""
        self._home = home
        self._standby = standby
        self._options = options
        self._replica: SlotReplica | None = None
        self._caught_up: float | None = None
        self.store_uuid = ""
        """The store's; empty until it was opened. It stays known once nothing can be read any more."""
        self._trouble = ""
        self._stopped = threads.Event()
        self._closing = threads.Lock()
        standby.is_read, standby.on_claim = True, self.stop
        self._thread = threads.Thread(target=self._run, name="nyala-replica", daemon=True)
        self._thread.start()

    @property
    def replica(self) -> SlotReplica:
        """The replica. Raises UnavailableError if the store has not been opened yet, or is followed no longer."""
        replica = self._replica
        if replica is None:
            state = "is no longer a replica" if self._stopped.is_set() else "has not opened the store yet"
            raise UnavailableError(f"this process {state}")
        return replica

    @property
    def lag_seconds(self) -> float | None:
        """How long ago it had all of the log that there was; None: it has not opened the store yet, or has stopped."""
        if self._caught_up is None or self._stopped.is_set():
            return None
        return self._home.seconds_since_boot() - self._caught_up

    @property
    def safe(self) -> int | None:
        """The newest snapshot that can be read here; None: none yet, or none any more."""
        replica = self._replica
        return None if replica is None or self.lag_seconds is None else replica.safe

    def stop(self) -> None:
        """Follow no longer, end what reads, and let its memory go: who has the log needs it to open the store."""
        self._stopped.set()
        self._standby.on_claim = lambda: None
        self._standby.moved.set()
        with self._closing:
            replica, self._replica = self._replica, None
        if replica is not None:
            replica.close()
        self._thread.join(_LEAVE_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._standby.moved.wait(_LOOK_SECONDS)
            self._standby.moved.clear()
            try:
                self._follow()
                self._trouble = ""
            except Exception as error:
                self._note(error)
                self._stopped.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        tail, slots = self._standby.tail, self._standby.slots
        if tail is None or slots is None:
            return
        looked, newest = tail.looked, tail.seen  # in this order: the end may move in between
        if newest is None:
            return
        with self._closing:
            if self._stopped.is_set():
                return
            replica = self._replica = self._replica or SlotReplica(self._home, slots, self._options)
        try:
            replica.advance_to(newest, looked)
        except OtherHistoryError:
            self._replica = None
            replica.close()
            raise
        self.store_uuid = newest.header.store_uuid.hex()
        if replica.end == newest.header.number:
            self._caught_up = looked

    def _note(self, error: Exception) -> None:
        """Log why the log cannot be followed, once in a row."""
        if not self._trouble and not self._stopped.is_set():
            _LOG.warning(
                "the replica does not follow the log now: %s", error, exc_info=not isinstance(error, StoreError)
            )
        self._trouble = str(error)
