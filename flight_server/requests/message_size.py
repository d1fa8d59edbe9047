"""The size of a decoded Arrow message, computed from its head and the lengths before its buffers.

The head is a flatbuffer (``format/Message.fbs``, ``format/Schema.fbs`` of Arrow) from a client, so every position is
checked. A compressed buffer begins with 8 bytes: its decompressed size, or -1 if it is not compressed.
"""

from __future__ import annotations

import struct

_DICTIONARY, _BATCH = 2, 3
_HEADER_TYPE, _HEADER = 1, 2
_BATCH_OF_DICTIONARY = 1
_BUFFERS, _COMPRESSION = 2, 3
_LENGTH = struct.Struct("<q")


class BrokenMessageError(Exception):
    """The head of an Arrow message from a client is no flatbuffer, or points outside of the message."""


def decoded_bytes(head: memoryview, body: memoryview) -> tuple[int, bool]:
    """Return the size of the buffers of a client's Arrow message when decoded, and whether any must be decompressed.

    A message that is neither a batch nor a dictionary counts 0. Overlapping buffers count separately, since copying
    them copies each.

    Raises:
        BrokenMessageError: the message is malformed.
    """
    try:
        message = _u32(head, 0)
        kind = _field(head, message, _HEADER_TYPE)
        if kind is None or head[kind] not in (_DICTIONARY, _BATCH):
            return 0, False
        batch = _table(head, message, _HEADER)
        if head[kind] == _DICTIONARY:
            batch = _table(head, batch, _BATCH_OF_DICTIONARY)
        return _batch_bytes(head, batch, body)
    except (struct.error, IndexError) as error:
        raise BrokenMessageError(str(error)) from None


def _batch_bytes(head: memoryview, batch: int, body: memoryview) -> tuple[int, bool]:
    field = _field(head, batch, _BUFFERS)
    if field is None:
        return 0, False
    vector = field + _u32(head, field)
    count = _u32(head, vector)
    buffers = head[vector + 4 : vector + 4 + 16 * count]
    if len(buffers) != 16 * count:
        raise BrokenMessageError("the list of buffers is cut off")
    is_compressed = _field(head, batch, _COMPRESSION) is not None
    size = 0
    for offset, length in struct.iter_unpack("<qq", buffers):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise BrokenMessageError("a buffer lies outside of the message")
        if is_compressed and length:
            plain = _LENGTH.unpack_from(body, offset)[0]
            if plain < -1 or length < 8:
                raise BrokenMessageError("a compressed buffer has an impossible length")
            length = length - 8 if plain == -1 else plain
        size += length
    return size, is_compressed


def _table(head: memoryview, table: int, number: int) -> int:
    field = _field(head, table, number)
    if field is None:
        raise BrokenMessageError("a part of the head is missing")
    return field + _u32(head, field)


def _field(head: memoryview, table: int, number: int) -> int | None:
    """Return the position of a field of a table; None if it has its default."""
    layout = table - struct.unpack_from("<i", head, table)[0]
    if layout < 0:
        raise BrokenMessageError("a table has no layout")
    size = struct.unpack_from("<H", head, layout)[0]
    if 4 + 2 * number + 2 > size:
        return None
    offset = struct.unpack_from("<H", head, layout + 4 + 2 * number)[0]
    return table + offset if offset else None


def _u32(head: memoryview, at: int) -> int:
    return struct.unpack_from("<I", head, at)[0]
