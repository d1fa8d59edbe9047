"""The request that this thread serves: its client, the tables that it means, and whether the answer is still wanted.

A server's thread sets it with ``serving``; long work calls ``check`` between its steps, and so ends soon after the
client disconnects or the deadline passes. A thread that serves no request, in an embedded store, is never stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from ..errors import ConflictError
from ..table.names import check_same

Given = ParamSpec("Given")
Result = TypeVar("Result")


class NotInMemoryError(Exception):
    """For a request that may not wait the disk has to be read, much to be decompressed, or a lock to be waited for."""


class Owner(NamedTuple):
    """The owner of what a request to the store's service leaves behind: limits are shared out by it."""

    peer: str = ""
    """The machine; empty for this one, and for the store's own process."""
    user: str = ""
    """Empty if nobody asks who calls."""


NOBODY = Owner()


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the store's service, as the store sees it."""

    peer: str
    """Its origin: limits on what one peer may hold are counted by it."""
    check: Callable[[], None]
    """Raises ``UnavailableError`` if the answer is no longer wanted."""
    id: Callable[[], str] = str
    """Returns what identifies it in the log; empty: nothing does."""
    check_elsewhere: Callable[[], None] | None = None
    """Does as ``check``, on any thread; None: only its own thread can tell."""
    user: str = ""
    """Who asks; empty if nobody knows."""
    may_wait: bool = True
    """Whether it may wait for a disk; else reads that have to raise NotInMemoryError."""


class _Column(Protocol):
    """A column of a table's schema."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


class _Thread(threading.local):
    request: Request | None = None
    meant: Mapping[str, int] | None = None
    columns: Mapping[str, int] | None = None


_thread = _Thread()


class serving:
    """Set the request to the store's service that this thread serves during the body. (A generator would cost three
    times as much.)"""

    __slots__ = ("_before", "_request")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._before: Request | None = None

    def __enter__(self) -> None:
        self._before, _thread.request = _thread.request, self._request

    def __exit__(self, *_: object) -> None:
        _thread.request = self._before


class meaning:
    """Let names mean only the tables and columns with these numbers, in what this thread asks of a store in this
    process during the body: so a request does nothing to one that got the name after the rights were checked."""

    __slots__ = ("_before", "_meant")

    def __init__(self, meant: Mapping[str, int] | None, columns: Mapping[str, int] | None = None) -> None:
        """``columns`` are those of the one table of the request. None: names mean whichever have them."""
        self._meant = meant, columns
        self._before: tuple[Mapping[str, int] | None, Mapping[str, int] | None] = None, None

    def __enter__(self) -> None:
        self._before = _thread.meant, _thread.columns
        _thread.meant, _thread.columns = self._meant

    def __exit__(self, *_: object) -> None:
        _thread.meant, _thread.columns = self._before


def check_meant(name: str, table_id: int) -> None:
    """Check that the table that has a name now is the one that this thread means by it.

    Raises:
        ConflictError: it is another one.
    """
    if (meant := _thread.meant) is not None:
        check_same(name, table_id, meant.get(name))


def check_columns_meant(table: str, columns: Iterable[_Column]) -> None:
    """Check that the columns by which a store does a request are those that this thread means by their names.

    Raises:
        ConflictError: a name is that of another column, or new.
    """
    if (meant := _thread.columns) is not None and any(meant.get(each.name) != each.id for each in columns):
        raise ConflictError(
            f"columns of table {table!r} were altered during the request: nothing was applied; send the request again"
        )


@contextmanager
def hurried() -> Iterator[None]:
    """Let this thread's work for its request to the store's service take no turns during the body, in which others wait
    for it."""
    request = _thread.request
    if request is None or request.check_elsewhere is None:
        yield
        return
    with serving(replace(request, check=request.check_elsewhere)):
        yield


def check() -> None:
    """Raise ``UnavailableError`` if the request to the store's service that this thread serves is no longer wanted."""
    if _thread.request is not None:
        _thread.request.check()


def may_wait() -> bool:
    """Return whether what this thread does may wait for a disk."""
    return _thread.request is None or _thread.request.may_wait


def check_may_wait() -> None:
    """Raise NotInMemoryError if what this thread does may not wait for a disk."""
    if _thread.request is not None and not _thread.request.may_wait:
        raise NotInMemoryError


def carried(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return work that another thread may do for the request to the store's service that this thread serves: its
    ``check`` ends it, too."""
    request = _thread.request
    if request is None or request.check_elsewhere is None:
        return work
    elsewhere = replace(request, check=request.check_elsewhere)

    def run(*arguments: Given.args, **options: Given.kwargs) -> Result:
        if _thread.request is request:
            return work(*arguments, **options)
        with serving(elsewhere):
            return work(*arguments, **options)

    return run


def owner() -> Owner:
    """Return the owner of the request to the store's service that this thread serves."""
    request = _thread.request
    return NOBODY if request is None else Owner(request.peer, request.user)


def user() -> str:
    """Return the user whose request to the store's service this thread serves; empty if nobody knows."""
    request = _thread.request
    return "" if request is None else request.user


def identify() -> Callable[[], str]:
    """Return a function that returns the id of the request to the store's service that this thread serves now."""
    return _thread.request.id if _thread.request is not None else str
