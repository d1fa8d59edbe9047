"""Whereabouts: which process has a store, as a server tells, and as the holder notes it beside the store."""

from typing import Literal

from pydantic import Field

from ..message import Message, new_list


class Holder(Message, frozen=True):
    """The process that has a store, and its locations."""

    locations: list[str] = Field(default_factory=new_list)
    """Where clients reach it, such as ``grpc://m1:8815``; empty if it was not told."""
    epoch: int = 0
    """The number of its claim; greater than that of all before it. 0 for a store in a directory."""
    process: str = ""
    """A uuid of this run of the process."""


class Whereabouts(Message, frozen=True):
    """Where a store is served: the answer of ``where``, and the content of the object ``where`` of a store in a
    bucket."""

    name: str | None = None
    """The store's in a bucket, or the server's in its placement; None: it is in a directory."""
    state: Literal["holder", "standby"]
    """Whether the process that says this has the store, or waits to take it over."""
    holder: Holder | None = None
    """Who has the store, as far as is known."""
    end: int | None = None
    """The number of the newest slot of the log that this process knows; None: the store is in a directory."""
    age_seconds: float | None = None
    """How long ago it saw that slot, or sent it, if it is the holder."""
    trouble: str | None = None
    """Why it could not take the store over now; None if it could."""
    lag_seconds: float | None = None
    """How long ago it had all of the log, if it answers reads while it stands by; None: it answers none."""
    safe: int | None = None
    """The newest snapshot that it can read then."""


class ReleaseStore(Message, frozen=True):
    """The body of ``server_release``: a server gives a store up."""

    name: str | None = None
    """The store that is meant; None: whichever the process has."""


class TakeStore(ReleaseStore, frozen=True):
    """The body of ``server_take``: a server takes a store over."""

    force: bool = False
    """Take it though its holder lives."""
