"""PatientBucket: a Bucket over single attempts. It repeats them, and it alone decides who created an object.

No error is an answer to ``create``; the object is. Clients, proxies and stores repeat a request whose answer was lost,
and are told then that the name is taken, by the caller's own object. Stores also answer 409 to several who race, though
none of them has won. So after any error the name is looked up: equal bytes are ours, others are not, and nothing means
to send the same bytes again. That is safe because a name has one content for ever.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ...schemas.errors import UnavailableError
from .. import threads
from ..mvcc.clock import elapsed_seconds
from .bucket import Bucket, check_name, check_prefix
from .objects import Objects

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike, ReadableFile

T = TypeVar("T")


def _sleep(seconds: float) -> None:
    threads.Event().wait(seconds)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long calls to an object store are repeated, and how the pauses between them grow. Tests pass in a time of
    their own."""

    seconds: float = 30.0
    """No attempt begins later than this after the first; one that has begun may take its own time-out longer."""
    first_pause_seconds: float = 0.02
    longest_pause_seconds: float = 1.0
    elapsed: Callable[[], float] = elapsed_seconds
    sleep: Callable[[float], None] = _sleep

    def attempts(self) -> Iterator[int]:
        """Yield the number of each attempt, from 0 on, after the pause before it; end when patience does."""
        start = self.elapsed()
        pause, number = self.first_pause_seconds, 0
        while True:
            yield number
            if self.elapsed() - start + pause > self.seconds:
                return
            self.sleep(pause)
            pause, number = min(2 * pause, self.longest_pause_seconds), number + 1


class PatientBucket:
    """A bucket over ``objects``, whose single attempts it repeats. Thread safe if they are."""

    def __init__(self, objects: Objects, patience: Patience | None = None) -> None:
        self.objects = objects
        self.patience = patience or Patience()
        self.unanswered = 0
        """How many attempts failed without the store's word that they have no effect: they may land later."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.objects!r})"

    def create(self, name: str, content: bytes) -> bool:
        check_name(name)
        failure: OSError | None = None
        is_refused = True  # every attempt: then none of them can still land
        for _ in self.patience.attempts():
            try:
                self.objects.put_if_absent(name, content)
                return True
            except OSError as error:
                failure = error
                is_refused = is_refused and isinstance(error, PermissionError)
                self.unanswered += not isinstance(error, (FileExistsError, PermissionError))
            try:
                return self.objects.get(name) == content
            except FileNotFoundError:
                pass
            except OSError as error:
                failure = error
                if is_refused and isinstance(error, PermissionError):
                    raise UnavailableError(f"{self!r} could not create {name}: {_told(error)}") from error
        raise UnavailableError(
            f"{self!r} may or may not have created {name}: the outcome is unknown ({_told(failure)}); try again"
        ) from failure

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        check_name(name)
        if not hasattr(content, "pread"):
            self._repeat(f"put {name}", lambda: self.objects.put(name, content))
            return
        file = _Content(content)  # pyright: ignore[reportArgumentType]
        try:
            self._repeat(f"put {name}", lambda: file.put_by(self.objects, name))
        except _UnreadableError as error:
            raise error.why from None

    def get(self, name: str) -> bytes:
        check_name(name)
        return self._repeat(f"get {name}", lambda: self.objects.get(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self.get_ranges(name, [(offset, length)])[0]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        check_name(name)
        if not ranges:
            return []
        found = self._repeat(f"get {name}", lambda: self.objects.get_ranges(name, ranges))
        for (offset, length), piece in zip(ranges, found, strict=True):
            if len(piece) != length:
                raise OSError(errno.ESTALE, f"the object ends before byte {offset + length}", name)
        return found

    def size(self, name: str) -> int:
        check_name(name)
        return self._repeat(f"get the size of {name}", lambda: self.objects.size(name))

    def list(self, prefix: str, after: str = "") -> list[tuple[str, int]]:
        check_prefix(prefix)
        return sorted(self._repeat(f"list {prefix}", lambda: self.objects.list(prefix, after)))

    def delete(self, names: Iterable[str]) -> None:
        all_names = [check_name(name) for name in names]
        if all_names:
            self._repeat(f"delete {all_names[0]}", lambda: self.objects.delete(all_names))

    def copy(self, source: str, target: str) -> None:
        check_name(source)
        check_name(target)
        self._repeat(f"copy {source}", lambda: self.objects.copy(source, target))

    def _repeat(self, what: str, call: Callable[[], T]) -> T:
        """Return the first answer to ``call``: its result, or FileNotFoundError."""
        failure: OSError | None = None
        for _ in self.patience.attempts():
            try:
                return call()
            except FileNotFoundError:
                raise
            except PermissionError as error:
                failure = error
                break
            except OSError as error:
                failure = error
                self.unanswered += 1
        raise UnavailableError(f"{self!r} could not {what}: {_told(failure)}") from failure


class _UnreadableError(Exception):
    """The content of an object cannot be read, whatever the store says."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class _Content:
    """A file whose bytes are put, as ``pieces_of`` reads it. It tells its own errors from those of the store."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._failure: Exception | None = None
        self.size = file.size

    def pread(self, offset: int, length: int) -> bytes:
        try:
            return self._file.pread(offset, length)
        except Exception as error:
            self._failure = error
            raise

    def put_by(self, objects: Objects, name: str) -> None:
        """Make one attempt. Raises _UnreadableError, and what the attempt does."""
        try:
            objects.put(name, self)  # pyright: ignore[reportArgumentType]
        except Exception as error:
            if self._failure is not None:
                raise _UnreadableError(self._failure) from error
            raise


def hurried(bucket: Bucket, seconds: float) -> Bucket:
    """Return a bucket for a caller that repeats its calls itself: each is one attempt, of some ``seconds`` and what its
    bytes take."""
    if not isinstance(bucket, PatientBucket):
        return bucket
    return PatientBucket(bucket.objects.within(seconds), replace(bucket.patience, seconds=0.0))


def _told(failure: OSError | None) -> str:
    return failure.strerror or str(failure) if failure else "no time was left for the request"
