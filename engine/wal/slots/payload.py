"""The payload of a slot: with the slot, or fetched from its chunks."""

from __future__ import annotations

from dataclasses import replace

from ....schemas.errors import CorruptionError
from ...bucket.at_once import at_once
from ...codecs.checksum import crc32
from .slot import Slot, path_of
from .slot_store import SlotStore


def whole(slots: SlotStore, slot: Slot) -> Slot:
    """Return a slot with its payload, fetched from its chunks if these have it.

    Raises:
        CorruptionError: a chunk is missing, or not what was put.
        UnavailableError: there is no answer.
    """
    if not slot.chunks:
        return slot
    found = at_once(lambda index: slots.read_chunk(slot, index), range(len(slot.chunks)))
    path = path_of(slot.header.number)
    for chunk, content, name in zip(slot.chunks, found, slot.chunk_names, strict=True):
        if content is None:
            raise CorruptionError(path, 0, f"the chunk {name} of this slot is missing")
        if len(content) != chunk.size_bytes or crc32(content) != chunk.crc:
            raise CorruptionError(path, 0, f"the checksum of the chunk {name} of this slot is wrong")
    return replace(slot, payload=memoryview(b"".join(content or b"" for content in found)))
