"""S3, Google Cloud Storage, Azure and all that speak their languages, through obstore (the Rust crate object_store).

The library's own retries are off: it would send a conditional PUT again after a lost answer, and report the caller's
own object as somebody else's. ``PatientBucket`` knows better. Its errors hold addresses, bodies and signed parts of
requests; only the status and the store's code of an error are passed on.

obstore starts threads at the first request of a process, and a fork does not copy them: in a process that was forked
after that, requests would wait for ever, so they are refused. Thread safe.
"""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ..fs.filesystem import ReadableFile, views_of
from .objects import pieces_of, size_of
from .patient import Patience, PatientBucket

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike

_PART_BYTES = 8 << 20
_PARTS_MAX = 10_000
"""How many parts an object of S3 may have."""
_SINGLE_BYTES_MAX = 64 << 20
"""Larger contents are put in parts."""
_COPY_BYTES_MAX = 5 << 30
"""S3 copies no larger object by one request."""
_UNKNOWN_BYTES = 64 << 20
_SECONDS = 5.0
"""How long one request may take: a small one that hangs is worth giving up soon. Each MiB may take some more."""
_STATUS = re.compile(r"status code: (\d{3})([A-Za-z -]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")

_processes: list[int] = []
"""The process that made the first request, and so has the threads."""


class ObstoreObjects:
    """The objects at ``url``, as in ``s3://bucket/root``. ``config`` are options of obstore, none of them secret;
    credentials come from the environment. ``seconds`` bounds a request, beside what its bytes take.

    Raises InvalidArgumentError if the package or the URL is no good.
    """

    def __init__(self, url: str, config: Mapping[str, str] | None = None, seconds: float = _SECONDS) -> None:
        self._url = url
        self._seconds = seconds
        self._config = dict(config or {})
        try:
            import obstore
        except ImportError as error:
            raise InvalidArgumentError(
                f"{url}: the package obstore is missing; install it: pip install 'nyala[bucket]'"
            ) from error
        self._obstore: Any = obstore
        self._clients = {(0, False): self._connect(0, False)}
        """By the seconds that bytes may take, and whether they are read."""

    def __repr__(self) -> str:
        return self._url

    def within(self, seconds: float) -> ObstoreObjects:
        return ObstoreObjects(self._url, self._config, seconds)

    def put_if_absent(self, name: str, content: bytes) -> None:
        with self._errors(name):  # in parts the condition would not count
            client = self._client(len(content))
            self._obstore.put(client, name, content, mode="create", use_multipart=False)

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        size = size_of(content)
        with self._errors(name):
            if size <= _SINGLE_BYTES_MAX:
                whole = b"".join(views_of(pieces_of(content)))
                self._obstore.put(self._client(size), name, whole, use_multipart=False)
            else:
                parts = (view for piece in pieces_of(content) for view in views_of([piece]))
                self._obstore.put(self._client(size), name, parts, chunk_size=_part_bytes(size))

    def get(self, name: str) -> bytes:
        with self._errors(name):
            return self._obstore.get(self._client(_UNKNOWN_BYTES, is_read=True), name).bytes().to_bytes()

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        merged = _merged(ranges)
        starts, lengths = [start for start, _ in merged], [end - start for start, end in merged]
        try:
            with self._errors(name):
                client = self._client(_UNKNOWN_BYTES, is_read=True)
                found = self._obstore.get_ranges(client, name, starts=starts, lengths=lengths, coalesce=0)
        except OSError as error:
            if error.errno != errno.ERANGE:
                raise
            return self._clipped(name, ranges)
        return [_cut(offset, length, starts, found) for offset, length in ranges]

    def size(self, name: str) -> int:
        with self._errors(name):
            return self._obstore.head(self._client(), name)["size"]

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        with self._errors(prefix):
            stream = self._obstore.list(
                self._client(), prefix.rstrip("/") or None, offset=after or None, chunk_size=1000
            )
            return [(each["path"], each["size"]) for page in stream for each in page]

    def delete(self, names: Sequence[str]) -> None:
        try:
            with self._errors(names[0]):
                self._obstore.delete(self._client(), list(names))
        except FileNotFoundError:
            for name in names:  # a store without a request for many stops at the first that is missing
                with suppress(FileNotFoundError), self._errors(name):
                    self._obstore.delete(self._client(), name)

    def copy(self, source: str, target: str) -> None:
        try:
            with self._errors(source):
                self._obstore.copy(self._client(_UNKNOWN_BYTES), source, target)
        except FileNotFoundError:
            raise
        except OSError:
            size = self.size(source)
            if size <= _COPY_BYTES_MAX:
                raise
            self._carry(source, target, size)

    def _carry(self, source: str, target: str, size: int) -> None:
        """Copy an object that is too large for the store to do so: read it and put it, part by part."""
        with (
            self._errors(source),
            self._obstore.open_writer(self._client(_UNKNOWN_BYTES), target, buffer_size=_part_bytes(size)) as writer,
        ):
            for offset in range(0, size, _PART_BYTES):
                writer.write(*self.get_ranges(source, [(offset, _PART_BYTES)]))

    def _clipped(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return what there is of ranges of which some lie past the object's end."""
        size = self.size(name)
        return self.get_ranges(
            name, [(min(offset, size), min(length, max(size - offset, 0))) for offset, length in ranges]
        )

    def _client(self, size: int = 0, is_read: bool = False) -> Any:
        """Return the client for requests that carry ``size`` bytes; one that reads also gives up when nothing comes."""
        _check_threads()
        mebibytes = min(size, _UNKNOWN_BYTES) >> 20
        seconds = 1 << mebibytes.bit_length() if mebibytes else 0  # each client has connections of its own: few of them
        if (seconds, is_read) not in self._clients:
            self._clients[seconds, is_read] = self._connect(seconds, is_read)
        return self._clients[seconds, is_read]

    def _connect(self, seconds: int, is_read: bool) -> Any:
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        limit = timedelta(seconds=self._seconds + seconds)
        client: Any = {
            "allow_http": True,  # if a URL says so
            "connect_timeout": timedelta(seconds=min(self._seconds, 2)),
            "timeout": limit,
        }
        if is_read:
            client["read_timeout"] = timedelta(seconds=self._seconds)
        config: Any = self._config
        try:
            return from_url(
                self._url, config=config, client_options=client, retry_config={"max_retries": 0, "retry_timeout": limit}
            )
        except (BaseError, ValueError) as error:
            raise InvalidArgumentError(f"{self._url} cannot be used: {_first_line(error)}") from None

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn what obstore raises into an OSError without secrets; nothing of the original goes on."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise FileExistsError(errno.EEXIST, "the object store refused to create the object", name) from None
        except (BaseError, OSError) as error:
            raise _os_error(error, name) from None


class ObstoreBucket(PatientBucket):
    """A place in an object store as a bucket. See ``ObstoreObjects``."""

    def __init__(self, url: str, config: Mapping[str, str] | None = None, patience: Patience | None = None) -> None:
        super().__init__(ObstoreObjects(url, config), patience)


def _part_bytes(size: int) -> int:
    """Return how large the parts of an object are, so that they are not too many."""
    return max(_PART_BYTES, -(-size // _PARTS_MAX))


def _check_threads() -> None:
    """Raise UnavailableError in a process that was forked from one that has made requests."""
    if not _processes:
        _processes.append(os.getpid())
    if _processes[0] != os.getpid():
        raise UnavailableError(
            "this process was forked from one that had used a bucket, and a fork does not copy the bucket's threads: "
            "start a new process (multiprocessing's spawn), or fork before the first request to the bucket"
        )


def _os_error(error: Exception, name: str) -> OSError:
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    number = int(status[1]) if status else 0
    told = " ".join(filter(None, [status[1] + status[2] if status else "", code[1] if code else ""]))
    if number in (401, 403) or (code and code[1] == "NoSuchBucket"):
        return PermissionError(errno.EACCES, f"the object store refused the request: {told}", name)
    if number == 416:
        return OSError(errno.ERANGE, told, name)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", name)
    return OSError(errno.EIO, told or _first_line(error), name)


def _first_line(error: Exception) -> str:
    """Return what an error says, without the addresses in it, which may be signed."""
    return re.sub(r"https?://[^\s)]*", "the store", str(error).split("\n")[0])


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges as (start, end) in order, with those joined that touch or overlap.

    To be joined by the library they would have to lie inside the object: it aborts a call otherwise.
    """
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(ranges):
        if merged and offset <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], offset + length))
        elif length:
            merged.append((offset, offset + length))
    return merged


def _cut(offset: int, length: int, starts: list[int], found: Sequence[Any]) -> bytes:
    """Return the bytes of one range out of those of all merged ones."""
    if not length:
        return b""
    at = bisect_right(starts, offset) - 1
    return bytes(memoryview(found[at])[offset - starts[at] : offset - starts[at] + length])
