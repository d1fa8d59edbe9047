"""Planted: mistakes in the protocol of failover, each of which the simulation must find.

The first seeds from 0 on that found them were 0 (refusal_is_mine), 0 (acks_unknown), 2 (no_lease), 10
(ceiling_ignored) and 23 (void_claims_count).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from nyala.engine.wal.slots.bucket_slots import BucketSlots
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.lease import Lease
from nyala.schemas.errors import UnavailableError

Plant = Callable[[], AbstractContextManager[object]]


@contextmanager
def refusal_is_mine() -> Iterator[None]:
    """A slot that another process made first passes for one's own."""
    create = BucketSlots.create

    def create_mine(self: BucketSlots, *given: Any) -> bool:
        create(self, *given)
        return True

    with patch.object(BucketSlots, "create", create_mine):
        yield


@contextmanager
def acks_unknown() -> Iterator[None]:
    """A slot counts though no answer to it came."""
    create = BucketSlots.create

    def create_somehow(self: BucketSlots, *given: Any) -> bool:
        try:
            return create(self, *given)
        except UnavailableError:
            return True

    with patch.object(BucketSlots, "create", create_somehow):
        yield


@contextmanager
def no_lease() -> Iterator[None]:
    """A process answers reads of "now" though another one may have the store."""
    with patch.object(Lease, "check", lambda self: None), patch.object(Lease, "holds", True):
        yield


@contextmanager
def ceiling_ignored() -> Iterator[None]:
    """The next holder begins at its own clock, not above what the former one may have given out."""
    with patch.object(CeilingClock, "update", lambda self, timestamp: None):
        yield


@contextmanager
def void_claims_count() -> Iterator[None]:
    """A claim counts though there are slots above it: it fell into a slot that was written and freed."""
    end = BucketSlots.end

    def no_end(self: BucketSlots, after: int = 0) -> int:
        return after + 1 if after else end(self, after)

    with patch.object(BucketSlots, "end", no_end):
        yield


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        refusal_is_mine,
        acks_unknown,
        no_lease,
        ceiling_ignored,
        void_claims_count,
    )
}
