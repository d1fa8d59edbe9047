"""Planted: mistakes in the protocol of failover, each of which the simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from nyala.engine.wal.slots.bucket_slots import BucketSlots
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


PLANTED: dict[str, Plant] = {plant.__name__: plant for plant in (refusal_is_mine, acks_unknown, no_lease)}
