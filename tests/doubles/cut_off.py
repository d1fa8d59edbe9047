"""A process that had a store in a bucket, was cut off from that, and still answers as if it had it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from nyala.clients.api.database import Database
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from tests.doubles.machines import OPTIONS, Machine
from tests.doubles.pair import Pair


@contextmanager
def cut_off(
    prepare: Callable[[Database], object], meet: Callable[[Pair], object] = lambda pair: None
) -> Iterator[tuple[Pair, Store]]:
    """Yield the servers of the former holder and of the next one, and the next one's store.

    ``prepare`` is given the store before; ``meet`` the servers, while nobody has lost it.
    """
    machine = Machine()
    former = Store.open(machine.home(), OPTIONS)
    prepare(Database(former))
    pair = Pair(former)
    meet(pair)
    machine.objects.is_away = True
    following = Store.open(machine.other().home(), OPTIONS)
    machine.boot.leap_seconds = 0.0  # the next holder keeps its lease
    pair.second.become(following)
    pair.give_to(pair.second)
    pair.first.is_holder = True
    try:
        yield pair, following
    finally:
        pair.close()
        following.close()
        with suppress(StoreError):
            former.close()
