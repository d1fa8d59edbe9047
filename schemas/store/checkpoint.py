"""Words of checkpoints: copies of a running store."""

from __future__ import annotations

from pydantic import StrictStr

from ..message import Message


class MakeCheckpoint(Message, frozen=True, extra="forbid"):
    """The body of ``checkpoint``: where to copy the running store."""

    directory: StrictStr
    """An absolute path on the machine of the store."""


class Checkpoint(Message, frozen=True):
    """The description of a checkpoint of a store that was made."""

    directory: str
    timestamp: int
    """It has every commit up to this timestamp, and no later one."""
    store_uuid: str
    """The identity of the copy."""
    files: int
    """The number of its column files."""
    linked: int
    """How many of them are new there, and hard links to those of the store."""
    copied: int
    """How many are new there, and copies: the directory is on another disk, or that disk has no hard links."""
    bytes: int
    """The size of its column files."""
    bytes_copied: int
    """The size of the copied ones."""
    log_bytes: int
    """The size of its log, which is written anew each time."""


class StoreCopied(Message, frozen=True):
    """The description of a copy of a store in a bucket that was made."""

    url: str
    name: str
    timestamp: int
    """It has every commit up to this one, and may have later ones."""
    store_uuid: str
    """The identity of the copy."""
    files_copied: int
    """How many column files were new there."""
    bytes_copied: int
    objects_deleted: int
    """How many of an earlier copy are gone."""
