"""The mark of a checkpoint: a directory that becomes a store when it is opened.

While a directory has a file ``checkpoint``, only checkpoints change it. Opening it removes the file first: from then on
it is a store like any other, and no checkpoint is made there again. Without a manifest beside it, the first checkpoint
was not finished, and nobody opens it.

A newer checkpoint is built beside the older one, in ``wal.next`` and ``manifest.next``, and its column files are added.
The name ``manifest.next`` is the last to become durable. From then on the newer one counts: ``finish`` gives both their
names, which are of one directory and so become durable in order, and can be repeated.
"""

from __future__ import annotations

from ...schemas.errors import InvalidArgumentError
from ...schemas.message import Message
from ..fs.document import pack, parsed, read, write
from ..fs.encryption.names import COPY_PATH as KEYS_COPY
from ..fs.encryption.names import PATH as KEYS
from ..fs.filesystem import FileSystem
from ..fs.tree import remove_tree
from ..manifest.manifest import Manifest, pack_manifest
from ..manifest.place import PATH as MANIFEST

PATH = "checkpoint"
NEXT_LOG = "wal.next"
_NEW_PATH = f"{PATH}.new"
_NEXT_MANIFEST = "manifest.next"
_NEW_MANIFEST = "manifest.next.new"
_LOG, _OLD_LOG = "wal", "wal.previous"
_MAGIC = b"NYALACKP"
_VERSION = 1


class CheckpointMark(Message, frozen=True):
    """The content of the file that marks a directory as a checkpoint."""

    source: str
    """The uuid of the store that the checkpoints are of."""


def read_mark(fs: FileSystem) -> CheckpointMark | None:
    """Return the mark of a checkpoint's directory; None if it has none. Raises CorruptionError if it is damaged."""
    if not fs.exists(PATH):
        return None
    return parsed(CheckpointMark, read(fs, PATH), PATH, _MAGIC, _VERSION, "mark of a checkpoint")


def write_mark(fs: FileSystem, mark: CheckpointMark) -> None:
    """Mark an empty directory as a checkpoint, durably, before anything else is written there."""
    write(fs, _NEW_PATH, pack(_MAGIC, _VERSION, mark.model_dump_json().encode()))
    fs.rename(_NEW_PATH, PATH)
    fs.sync_directory("")


def is_empty(fs: FileSystem) -> bool:
    """Whether a directory has nothing but what an attempt to mark it as a checkpoint may have left."""
    keys = {f"{name}{end}" for name in (KEYS, KEYS_COPY) for end in ("", ".new")}
    return {"lock", _NEW_PATH, *keys}.issuperset(fs.list(""))


def commit(fs: FileSystem, manifest: Manifest) -> None:
    """Make the newer checkpoint count, by its manifest: its log is in ``wal.next``, and its column files are durable.
    Raises OSError."""
    write(fs, _NEW_MANIFEST, pack_manifest(manifest))
    fs.sync_directory("")  # before the next name: whoever sees that one must find the log
    fs.rename(_NEW_MANIFEST, _NEXT_MANIFEST)
    fs.sync_directory("")
    finish(fs)


def finish(fs: FileSystem) -> None:
    """Put a newer checkpoint that counts in place of the older one, and remove what is left of others."""
    if fs.exists(_NEXT_MANIFEST):
        if fs.exists(NEXT_LOG):
            if fs.exists(_LOG):
                remove_tree(fs, _OLD_LOG)
                fs.rename(_LOG, _OLD_LOG)
            fs.rename(NEXT_LOG, _LOG)
        fs.rename(_NEXT_MANIFEST, MANIFEST)
        fs.sync_directory("")
    for left in (_OLD_LOG, NEXT_LOG):
        remove_tree(fs, left)
    for left in (_NEW_MANIFEST, _NEW_PATH):
        if fs.exists(left):
            fs.unlink(left)


def check_finished(fs: FileSystem) -> None:
    """Raise InvalidArgumentError if a checkpoint was interrupted so that its files cannot be read as those of a
    store."""
    if fs.exists(_NEXT_MANIFEST):
        raise InvalidArgumentError(
            "the newest checkpoint here is complete, but its last step is missing: open the directory as a "
            "store to finish it, or run `nyala checkpoint` again"
        )
    if fs.exists(PATH) and not fs.exists(MANIFEST):
        raise InvalidArgumentError(
            "this is an unfinished checkpoint, not a store: make it again with `nyala checkpoint`, or delete it"
        )


def become_a_store(fs: FileSystem) -> None:
    """Make the store in a checkpoint one of its own, if there is one. Its lock is held.

    Raises:
        InvalidArgumentError: the checkpoint is unfinished; nothing was changed.
    """
    if not fs.exists(PATH):
        return
    if not has_store(fs):
        check_finished(fs)
    finish(fs)
    fs.sync_directory("")
    fs.unlink(PATH)
    fs.sync_directory("")


def has_store(fs: FileSystem) -> bool:
    """Whether a directory has a store, or a checkpoint that becomes one when it is opened."""
    return fs.exists(MANIFEST) or fs.exists(_NEXT_MANIFEST)
