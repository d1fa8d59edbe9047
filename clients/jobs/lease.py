"""Leases: one run at a time works on a folder. A run that died loses its lease after a while.

Object stores have no locks and no renames, but list each object once written. So a run that wants a lease writes a
claim, a file of its own, and then lists all claims: it has the lease if there is no other. Of two runs that write at
the same time, both see the other and retry after pauses of different lengths; otherwise the later one sees the earlier.
No name is written by two runs, so a run that takes over can delete no lease but the dead one (ADR 17).

A run keeps rewriting its claim. The age of a claim is the difference to one written just now, both by the storage's
clock: the machines' clocks do not matter. A claim is removed if it is older than ``LEASE_SECONDS``, or if its process
ran on this machine and has ended.

A run that was suspended for longer than that (a machine that slept) finds out by ``check``, before it publishes or
removes anything.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from pydantic import BaseModel

from ...schemas.errors import ConflictError, CorruptionError, NotFoundError, StoreError, UnavailableError
from .folder import Folder

LEASE_SECONDS = 60.0
"""A run without a heartbeat for this long counts as dead."""
_RENEWALS = 4
"""Heartbeats in that time; after half of it without one, a run considers its lease lost."""
_ATTEMPTS = 12
_PAUSE_SECONDS = 0.05


class Holder(BaseModel, frozen=True):
    """The run of a job that has a lease."""

    run: str
    host: str
    machine: str
    """Identifies the scope in which ``pid`` is unique: a boot of a machine, and a PID namespace."""
    pid: int
    born: str
    """When the process started, as the kernel counts it: pids are reused."""
    since: str
    """When the run started, by its own clock; only for messages."""

    @classmethod
    def me(cls) -> Holder:
        """Return a new run of this process."""
        pid, now = os.getpid(), datetime.now(UTC).isoformat(timespec="seconds")
        host = socket.gethostname()[:64]
        return cls(run=uuid.uuid4().hex, host=host, machine=_machine(), pid=pid, born=_born(pid), since=now)

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended: it ran on this machine and no longer exists."""
        return bool(self.machine) and self.machine == _machine() and self.born != _born(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def held_by(what: str, holder: Holder) -> UnavailableError:
    """Return the error that names the run of a job that is at work."""
    return UnavailableError(
        f"{what} is in use by another run ({holder}): wait for it to end, then try again. A run that was killed "
        f"can be taken over {LEASE_SECONDS:.0f} seconds after its last heartbeat"
    )


def lost(what: str) -> ConflictError:
    """Return the error of a job's run whose lease may have been taken over."""
    return ConflictError(
        f"{what} may have been taken over by another run, because this one was suspended for more than "
        f"{LEASE_SECONDS / 2:.0f} seconds; nothing was published: run the job again"
    )


class Heartbeat:
    """Renews the lease of a job's run in a background thread."""

    def __init__(self, renew: Callable[[], object]) -> None:
        """``renew`` raises ConflictError if another run has the lease."""
        self._renew = renew
        self._renewed = _seconds()
        self._is_lost = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nyala-lease", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether no other run can have taken the lease over."""
        return not self._is_lost and _seconds() - self._renewed < LEASE_SECONDS / 2

    def stop(self) -> None:
        """Stop renewing."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(LEASE_SECONDS / _RENEWALS):
            begun = _seconds()
            try:
                if self.is_alive:
                    self._renew()
                    self._renewed = begun
            except ConflictError:
                self._is_lost = True
            except (StoreError, OSError):  # retried at the next heartbeat
                continue


class _Claim(BaseModel, frozen=True):
    holder: Holder
    is_held: bool
    """False until the run has looked for other claims."""


class FolderLease:
    """The exclusive right of a job's run to change ``name`` in a folder, for the duration of the context."""

    def __init__(self, folder: Folder, name: str, what: str) -> None:
        """``what`` names the resource in errors."""
        self._folder = folder
        self._name = name
        self._what = what
        self._holder = Holder.me()
        self._beat: Heartbeat | None = None

    def __enter__(self) -> FolderLease:
        """Take the lease.

        Raises:
            UnavailableError: another run has it; the message names it.
        """
        self._folder.make()
        try:
            self._take()
            self._beat = Heartbeat(self._renew)
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._beat:
            self._beat.stop()
        self._let_go()

    def check(self) -> None:
        """Raise ConflictError unless the lease is certainly still this run's."""
        if not (self._beat and self._beat.is_alive and self._is_mine()):
            raise lost(self._what)

    @property
    def _mine(self) -> str:
        return f"{self._name}.{self._holder.run}.json"

    def _take(self) -> None:
        rival = self._holder
        for attempt in range(_ATTEMPTS):
            self._write(is_held=False)
            others = self._others()
            if not others:
                self._write(is_held=True)
                return
            self._let_go()
            if found := [claim for claim in others if claim.is_held]:
                raise held_by(self._what, found[0].holder)
            rival = others[0].holder
            time.sleep(random.uniform(1, 2 + attempt) * _PAUSE_SECONDS)
        raise held_by(self._what, rival)

    def _renew(self) -> None:
        if not self._is_mine():
            raise lost(self._what)
        self._write(is_held=True)

    def _is_mine(self) -> bool:
        return self._folder.has(self._mine) and not any(claim.is_held for claim in self._others())

    def _write(self, is_held: bool) -> None:
        self._folder.write_model(self._mine, _Claim(holder=self._holder, is_held=is_held))

    def _others(self) -> list[_Claim]:
        """Return the claims of other living runs; remove those of dead ones."""
        written = self._folder.times(f"{self._name}.")
        now = written.pop(self._mine, None)
        living: list[_Claim] = []
        for file, at in written.items():
            claim = self._read(file)
            is_old = now is not None and now - at > LEASE_SECONDS
            if is_old or (claim and claim.holder.is_gone):
                with suppress(NotFoundError, FileNotFoundError):  # another run removed it first
                    self._folder.remove(file)
            elif claim:
                living.append(claim)
        return living

    def _read(self, file: str) -> _Claim | None:
        try:
            return self._folder.read_model(file, _Claim)
        except NotFoundError:
            return None
        except CorruptionError:  # half written by a run that died, where storage allows that
            unknown = Holder(run="", host="an unknown machine", machine="", pid=0, born="", since="an unknown time")
            return _Claim(holder=unknown, is_held=True)

    def _let_go(self) -> None:
        with suppress(StoreError, OSError):
            self._folder.remove(self._mine)


def _seconds() -> float:
    """Return a time that also advances while the machine sleeps, and that cannot be set."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _machine() -> str:
    """Return the scope of visible processes; empty if the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        return blake2b(boot + os.readlink("/proc/self/ns/pid").encode(), digest_size=8).hexdigest()
    except OSError:
        return ""


def _born(pid: int) -> str:
    """Return when a process started, in ticks since the boot; empty if it does not exist."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if said[0] in "ZX" else said[19]
    except (OSError, IndexError):
        return ""
