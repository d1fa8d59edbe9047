"""Asks a bucket several things at once: a request takes some 20 ms, whatever it is for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from .. import threads

_REQUESTS = 16
"""Requests that are under way at the same time."""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def asking() -> threads.ThreadPoolExecutor:
    """Return threads for requests to a bucket, a few of which are under way at once. Its end waits for all answers."""
    return threads.ThreadPoolExecutor(_REQUESTS, "nyala-ask")


def at_once(ask: Callable[[Asked], Answer], asked: Sequence[Asked]) -> list[Answer]:
    """Ask a bucket several things at once, and return the answers in order. Raises what the first call raises that
    fails; then some may not have been made."""
    if len(asked) < 2:
        return [ask(each) for each in asked]
    with threads.ThreadPoolExecutor(min(len(asked), _REQUESTS), "nyala-ask") as pool:
        return list(pool.map(ask, asked))


def in_order(ask: Callable[[Asked], Answer], asked: Iterable[Asked]) -> Generator[Answer]:
    """Ask a bucket several things, and yield the answers in order; while one of them is looked at, the next ones are on
    their way.

    Raises what the call for the next answer raises. Whoever stops early does not wait for the calls that are under way:
    the garbage collector may close the generator, on a thread that is being started and holds the lock that the end of
    every thread takes.
    """
    pool = asking()
    under_way: deque[Future[Answer]] = deque()
    try:
        for each in asked:
            under_way.append(pool.submit(ask, each))
            if len(under_way) == _REQUESTS:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
