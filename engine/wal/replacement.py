"""Replaces a damaged log by another one, so that a crash leaves either the old or the new log.

The new segments are in their own directory, numbered after the old ones. Once the file ``complete`` is there, written
last, they are the log. Until ``finish``, which can be repeated, has moved them to the place of the old ones, the store
may not be opened.
"""

from __future__ import annotations

from ...schemas.errors import CorruptionError
from ..fs import document
from ..fs.copy import bring
from ..fs.filesystem import FileSystem, join
from .format import encode_record
from .rewriting import LogRewriter
from .salvage import Hole, LogSalvage
from .segments import segment_numbers, segment_path

DIRECTORY = "wal.repaired"
_COMPLETE = f"{DIRECTORY}/complete"
_COMPLETE_NEW = f"{DIRECTORY}/complete.new"
_FILLERS_AT_ONCE = 1 << 16


def check_not_under_way(fs: FileSystem) -> None:
    """Raise CorruptionError if a replacement of the log is unfinished."""
    if fs.exists(_COMPLETE):
        why = "a repair of the log was interrupted: run `nyala repair --apply` again to finish it"
        raise CorruptionError(DIRECTORY, 0, why)


def write(fs: FileSystem, salvage: LogSalvage, store_uuid: bytes, note: bytes) -> None:
    """Write a damaged log without its holes. Empty records replace lost ones, so that no lsn is reused.

    From its return on the new log is the log, and ``note`` is kept with it until ``finish``.
    """
    discard(fs)
    fs.make_directory(DIRECTORY)
    segment_bytes = max((fs.size(path) for path in salvage.paths), default=0)
    writer = LogRewriter(fs, DIRECTORY, store_uuid, max(salvage.numbers, default=0) + 1, segment_bytes)
    timestamp = 0
    for each in salvage.found():
        if isinstance(each, Hole):
            for first in range(each.first_lsn, each.last_lsn + 1, _FILLERS_AT_ONCE):
                count = min(_FILLERS_AT_ONCE, each.last_lsn + 1 - first)
                writer.add([encode_record(timestamp, [])] * count, first)
        else:
            writer.add(
                [encode_record(record.timestamp, [record.payload]) for record in each.records], each.records[0].lsn
            )
            timestamp = each.records[-1].timestamp
    writer.end(salvage.next_lsn)
    document.write(fs, _COMPLETE_NEW, note)
    fs.sync_directory(DIRECTORY)
    fs.sync_directory("")
    fs.rename(_COMPLETE_NEW, _COMPLETE)
    fs.sync_directory(DIRECTORY)


def note_of(fs: FileSystem) -> bytes | None:
    """Return the note of an unfinished replacement of the log; None if there is none."""
    return document.read(fs, _COMPLETE) if fs.exists(_COMPLETE) else None


def finish(fs: FileSystem, directory: str) -> None:
    """Replace the segments of the damaged log in ``directory``, which have been kept under other names, by those of the
    new log."""
    numbers = segment_numbers(fs, DIRECTORY)
    for number in numbers:
        new, path = segment_path(DIRECTORY, number), segment_path(directory, number)
        if fs.exists(path) and fs.size(path) != fs.size(new):
            fs.unlink(path)  # a partial copy, on disks without links
        if not fs.exists(path):
            bring(fs, new, fs, path)
    for number in segment_numbers(fs, directory):
        if number not in numbers:
            fs.unlink(segment_path(directory, number))
    fs.sync_directory(directory)
    fs.unlink(_COMPLETE)
    fs.sync_directory(DIRECTORY)
    discard(fs)


def discard(fs: FileSystem) -> None:
    """Remove an incomplete replacement of the log."""
    if fs.exists(DIRECTORY):
        for name in fs.list(DIRECTORY):
            fs.unlink(join(DIRECTORY, name))
        fs.remove_directory(DIRECTORY)
        fs.sync_directory("")
