"""The file ``pin`` of a pin that is kept in a directory: its name, and what a reader needs. Without it, the directory
of a pin is of an earlier process, and is removed.

A document as in ``fs/document``: magic ``NYALAPIN``, version 1, and JSON.
"""

from __future__ import annotations

from pydantic import NonNegativeInt

from ...schemas.message import Message
from ...schemas.store.direct import PinnedTable
from ...schemas.table.table import TableOptions
from ..fs.document import pack, parsed, read, write
from ..fs.filesystem import FileSystem, join
from ..fs.tree import remove_tree
from . import files
from .manifest import Manifest, TableEntry, TabletEntry

ROOT = "pins"
_NAME = "pin"
_MAGIC = b"NYALAPIN"
_VERSION = 1


class PinNote(Message, frozen=True, extra="forbid"):
    """The content of the file ``pin`` in the directory of a kept pin."""

    name: str
    pinned: PinnedTable
    options: TableOptions
    sizes: dict[str, NonNegativeInt]
    """The bytes in each file, by its path in the store."""

    @property
    def manifest(self) -> Manifest:
        """What the manifest of a store would say that has no other files than the pin."""
        pinned = self.pinned
        table = TableEntry(
            id=pinned.table_id,
            name=pinned.table,
            schema_=pinned.schema_,
            options=self.options,
            tablets=tuple(map(TabletEntry.model_validate, pinned.tablets)),
            partitions=pinned.partitions,
        )
        return Manifest(store_uuid="", tables=(table,))


def path_in(directory: str) -> str:
    """Return the path of the file ``pin`` in a pin's directory: it says what the pin keeps."""
    return join(directory, _NAME)


def pack_note(note: PinNote) -> bytes:
    """Return the bytes of the file ``pin`` of a kept pin."""
    return pack(_MAGIC, _VERSION, note.model_dump_json().encode())


def read_note(fs: FileSystem, directory: str) -> PinNote:
    """Return the content of the file ``pin`` in the directory of a kept pin. Raises CorruptionError,
    InvalidArgumentError and OSError."""
    path = path_in(directory)
    return parsed(PinNote, read(fs, path), path, _MAGIC, _VERSION, "note of a pin")


def keep(fs: FileSystem, note: PinNote) -> None:
    """Make a pin last by its file ``pin``, durably, as the last step: its other files are there. Raises OSError."""
    directory = note.pinned.directory
    tablets = join(directory, files.ROOT)
    homes = [join(tablets, home) for home in fs.list(tablets)] if fs.exists(tablets) else []
    for each in [*homes, *([tablets] if homes else []), directory, ROOT, ""]:
        fs.sync_directory(each)
    new = join(directory, f"{_NAME}.new")
    write(fs, new, pack_note(note))
    fs.rename(new, join(directory, _NAME))
    fs.sync_directory(directory)


def keep_no_longer(fs: FileSystem, directory: str) -> None:
    """Let a pin end by removing its file ``pin``, durably; its other files may be removed then. May be repeated. Raises
    OSError."""
    path = join(directory, _NAME)
    if fs.exists(path):  # else only the sync failed before
        fs.unlink(path)
    fs.sync_directory(directory)


def kept(fs: FileSystem) -> list[str]:
    """Return the directories of pins that are kept."""
    directories = [join(ROOT, name) for name in sorted(fs.list(ROOT))] if fs.exists(ROOT) else []
    return [directory for directory in directories if fs.exists(join(directory, _NAME))]


def sweep(fs: FileSystem) -> None:
    """Remove the directories of pins of an earlier process, but for those that are kept."""
    if not fs.exists(ROOT):
        return
    lasting = kept(fs)
    for directory in (join(ROOT, name) for name in fs.list(ROOT)):
        if directory not in lasting:
            remove_tree(fs, directory)
    if not lasting:
        fs.remove_directory(ROOT)
