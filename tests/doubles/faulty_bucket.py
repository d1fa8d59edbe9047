"""An object store whose calls fail, are doubled, come late or lie, on purpose and by number."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.bucket.objects import Objects, pieces_of
from nyala.engine.bucket.patient import Patience, PatientBucket
from nyala.engine.fs.filesystem import views_of

if TYPE_CHECKING:
    from nyala.engine.fs.filesystem import BytesLike, ReadableFile

T = TypeVar("T")

CHANGES = frozenset({"put_if_absent", "put", "delete", "copy"})


class Fault(Enum):
    """What happens to one call."""

    BEFORE = "fails before its effect"
    AFTER = "fails after its effect: the answer is lost"
    TWICE = "has its effect twice, and the second answer is told"
    LATE = "fails, and has its effect after some later calls"
    CONFLICT = "is refused as if the name were taken, without an effect"
    FORBIDDEN = "is refused for its credentials"
    AGAIN = "has its effect, and once more after some later calls"


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt, by its number from 1 on; ``landed`` is whether its effect is there."""

    number: int
    verb: str
    name: str
    landed: bool


class FaultyObjects:
    """``inner`` with a fault for some of its calls, which are numbered from 1 on.

    ``calls`` lists all attempts in their order; ``effects`` the changes, (verb, name), in the order in which they
    landed, the late ones where they did. While ``is_away`` is set every call fails before its effect. Calls after
    ``away_from`` do too, for good.
    """

    def __init__(
        self,
        inner: Objects | None = None,
        faults: Mapping[int, Fault] | None = None,
        late_by: int = 3,
        away_from: int | None = None,
    ) -> None:
        self.inner: Objects = inner or MemoryObjects()
        self.faults = dict(faults or {})
        self.late_by = late_by
        self.away_from = away_from
        self.is_away = False
        self.error_of: Callable[[Fault | None, str, str], Exception] = _error_of
        """What a call raises: by its fault, its verb and the name that it asks for."""
        self.calls: list[Call] = []
        self.effects: list[tuple[str, str]] = []
        self._late: list[tuple[int, str, str, Callable[[], object]]] = []
        self._mutex = threading.RLock()

    def __repr__(self) -> str:
        return f"faulty {self.inner!r}"

    def within(self, seconds: float) -> FaultyObjects:
        return self

    def put_if_absent(self, name: str, content: bytes) -> None:
        self._call("put_if_absent", name, lambda: self.inner.put_if_absent(name, content))

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        with self._mutex:
            if self.faults.get(len(self.calls) + 1) in (Fault.LATE, Fault.AGAIN):
                content = b"".join(views_of(pieces_of(content)))  # the file may be gone when it lands
            self._call("put", name, lambda: self.inner.put(name, content))

    def get(self, name: str) -> bytes:
        return self._call("get", name, lambda: self.inner.get(name))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._call("get_ranges", name, lambda: self.inner.get_ranges(name, ranges))

    def size(self, name: str) -> int:
        return self._call("size", name, lambda: self.inner.size(name))

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        return self._call("list", prefix, lambda: self.inner.list(prefix, after))

    def delete(self, names: Sequence[str]) -> None:
        self._call("delete", " ".join(names), lambda: self.inner.delete(names))

    def copy(self, source: str, target: str) -> None:
        self._call("copy", target, lambda: self.inner.copy(source, target))

    def land_late_ones(self) -> None:
        """Let everything that is still under way have its effect."""
        with self._mutex:
            late, self._late = self._late, []
            for _, verb, name, effect in late:
                self._land(verb, name, effect)

    def _call(self, verb: str, name: str, effect: Callable[[], T]) -> T:
        with self._mutex:
            number = len(self.calls) + 1
            self._land_due(number)
            fault = self.faults.get(number)
            if self.is_away or (self.away_from is not None and number > self.away_from):
                fault = Fault.BEFORE
            lands = fault in (None, Fault.AFTER, Fault.TWICE, Fault.AGAIN)
            self.calls.append(Call(number, verb, name, lands))
            if fault is Fault.TWICE and verb in CHANGES:
                self._land(verb, name, effect)
            if fault in (Fault.LATE, Fault.AGAIN) and verb in CHANGES:
                self._late.append((number + self.late_by, verb, name, effect))
            if lands and fault is not Fault.AFTER:
                return self._effect(verb, name, effect)
            if fault is Fault.AFTER:
                self._land(verb, name, effect)
            raise self.error_of(fault, verb, name)

    def _land_due(self, number: int) -> None:
        due = [each for each in self._late if each[0] <= number]
        self._late = [each for each in self._late if each[0] > number]
        for _, verb, name, effect in due:
            self._land(verb, name, effect)

    def _land(self, verb: str, name: str, effect: Callable[[], object]) -> None:
        """Have the effect of a call whose answer nobody hears."""
        try:
            self._effect(verb, name, effect)
        except OSError:
            return

    def _effect(self, verb: str, name: str, effect: Callable[[], T]) -> T:
        result = effect()
        if verb in CHANGES:
            self.effects.append((verb, name))
        return result


class FaultyBucket(PatientBucket):
    """A bucket over FaultyObjects; it does not really wait between attempts, and makes ``attempts`` of them."""

    objects: FaultyObjects

    def __init__(
        self,
        inner: Objects | None = None,
        faults: Mapping[int, Fault] | None = None,
        late_by: int = 3,
        away_from: int | None = None,
        attempts: int = 5,
    ) -> None:
        super().__init__(FaultyObjects(inner, faults, late_by, away_from), impatience(attempts))


def impatience(attempts: int) -> Patience:
    """Return the patience for so many attempts of each call, without a pause between them."""
    return Patience(attempts + 0.5, 1, 1, _Steps().elapsed, sleep=lambda _: None)


class _Steps:
    """A clock that goes on by a second whenever a thread looks at it: once for each of its attempts."""

    def __init__(self) -> None:
        self._local = threading.local()

    def elapsed(self) -> float:
        self._local.now = getattr(self._local, "now", 0.0) + 1
        return self._local.now


def _error_of(fault: Fault | None, verb: str, name: str) -> OSError:
    if fault is Fault.CONFLICT and verb == "put_if_absent":
        return FileExistsError(errno.EEXIST, "conflict", name)
    if fault is Fault.FORBIDDEN:
        return PermissionError(errno.EACCES, "forbidden", name)
    return OSError(errno.EIO, f"{verb} {'failed' if fault is None else fault.value}", name)
