"""Named points in what a server asks of its bucket, at which a campaign stops or kills the process.

The campaign writes files into a directory that it shares with the process: ``armed`` has a point and what happens
there; when it is reached the file is renamed to ``reached``. While there is a file ``cut``, the bucket does not answer.
``ready`` is made when the process asks its bucket for the first time.

A server that shares its tables with others also has the points of moves (``move_points.py``): before and after each
verb, and before and after each step that it takes of the bucket during one, as in ``after commit of hand over``.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nyala.engine.bucket.objects import Objects
from nyala.engine.wal.slots.slot import SlotKind, decode_slot

if TYPE_CHECKING:
    from nyala.engine.fs.filesystem import BytesLike, ReadableFile

STEPS = (
    "claim",
    "look above",
    "records",
    "beat",
    "commit",
    "release",
    "chunk",
    "manifest",
    "file",
    "copy",
    "delete",
)
"""What a server does: slots by their kind (a commit names a new manifest), puts of chunks, manifests and files, copies,
deletions. ``look above`` is the listing after a claim."""
_PUTS = {"/chunks/": "chunk", "/manifests/": "manifest", "/tablets/": "file", "/staging/": "part"}
POINTS = tuple(f"{side} {step}" for step in STEPS for side in ("before", "after"))

ARMED, REACHED, CUT, READY = "armed", "reached", "cut", "ready"
_SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}
_SLOT = re.compile(r"/log/(\d{20})$")
_POLL_SECONDS = 0.02
UNDER_WAY: Counter[str] = Counter()
"""How many calls of each verb of moves are under way in this process."""
_REQUEST_SECONDS = 5.0


def arm(control: Path, point: str, act: str) -> None:
    """Have a process "stop" or be "kill"-ed where it next reaches ``point``."""
    (control / REACHED).unlink(missing_ok=True)
    new = control / "new"
    new.write_text(f"{point}:{act}")
    new.rename(control / ARMED)


def disarm(control: Path) -> bool:
    """Take the last point back; return whether it was reached."""
    (control / ARMED).unlink(missing_ok=True)
    return (control / REACHED).exists()


class PointedObjects:
    """``inner`` as one process sees it."""

    def __init__(
        self, inner: Objects, control: Path, seconds: float = _REQUEST_SECONDS, past: dict[str, str] | None = None
    ) -> None:
        self._inner, self._control, self._seconds = inner, control, seconds
        self._past = {} if past is None else past
        """What happened before: the manifest of the last slot, a claim that was just made."""

    def __repr__(self) -> str:
        return f"{self._inner!r}"

    def within(self, seconds: float) -> PointedObjects:
        return PointedObjects(self._inner.within(seconds), self._control, seconds, self._past)

    def put_if_absent(self, name: str, content: bytes) -> None:
        with self._at(self._slot_step(name, content)):
            self._inner.put_if_absent(name, content)

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        with self._at(next((step for place, step in _PUTS.items() if place in name), "")):
            self._inner.put(name, content)

    def get(self, name: str) -> bytes:
        with self._at(""):
            return self._inner.get(name)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._at(""):
            return self._inner.get_ranges(name, ranges)

    def size(self, name: str) -> int:
        with self._at(""):
            return self._inner.size(name)

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        with self._at("look above" if self._past.pop("claim", "") and prefix.endswith("/log/") else ""):
            return self._inner.list(prefix, after)

    def delete(self, names: Sequence[str]) -> None:
        with self._at("delete"):
            self._inner.delete(names)

    def copy(self, source: str, target: str) -> None:
        with self._at("copy"):
            self._inner.copy(source, target)

    def _slot_step(self, name: str, content: bytes) -> str:
        found = _SLOT.search(name)
        if found is None:
            return ""
        header = decode_slot(int(found[1]), content).header
        is_commit = header.manifest != self._past.get("manifest", header.manifest)
        self._past["manifest"] = header.manifest
        if header.kind is SlotKind.CLAIM:
            self._past["claim"] = name
        return "commit" if is_commit and header.kind is not SlotKind.CLAIM else header.kind.name.lower()

    @contextmanager
    def _at(self, step: str) -> Iterator[None]:
        """Do one step: nothing of it happens while the bucket is cut off, and no answer comes through."""
        self._answer()
        verbs = [verb for verb, count in UNDER_WAY.items() if count]
        steps = [step, *(f"{step} of {verb}" for verb in verbs)] if step else []
        reach(self._control, *(f"before {each}" for each in steps))
        yield
        reach(self._control, *(f"after {each}" for each in steps))
        self._answer()

    def _answer(self) -> None:
        if not self._past.get("ready"):
            self._past["ready"] = "yes"
            (self._control / READY).touch()
        cut, end = self._control / CUT, time.monotonic() + self._seconds
        while cut.exists():
            if time.monotonic() > end:
                raise OSError(errno.ETIMEDOUT, "no answer")
            time.sleep(_POLL_SECONDS)


def reach(control: Path, *names: str) -> None:
    """Do what the campaign has asked for where this process is now, which is at all of these points."""
    armed = control / ARMED
    try:
        wanted, act = armed.read_text().split(":")
        if wanted not in names:
            return
        armed.rename(control / REACHED)
    except FileNotFoundError:
        return
    os.kill(os.getpid(), _SIGNALS[act])
