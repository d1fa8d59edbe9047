"""Dictionary: distinct byte strings once, and a small code for each row.

The dictionary is one for all pages of a column in a file; the file keeps it in a page of its own
(plain). This codec stores the codes of one page. Payload, little-endian::

    | width u1 | ends u4 x blocks | block 0 | block 1 | ... |

Codes shrink to the narrowest of 1, 2 or 4 bytes that holds the largest one of the page, and then
are stored as `nyala.engine.codecs.bitshuffle` stores cells.

Writing: `DictionaryBuilder.add` turns byte strings into codes, until it says no; then the writer
falls back to another encoding for the pages that follow. Reading: ``decode`` returns codes,
`attach` joins them with the dictionary.
"""

from collections.abc import Iterator

import numpy as np

from ..kernels.pages import dictionary as kernels
from ..kernels.pages.blocks import widen_codes
from ..vectors.memory.memory import address_of, allocate, allocate_zeroed
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector
from .blocks import blocks_of_range, blocks_of_rows, check_packed, loose_cells, loosened, pack, ranges_of_block, unpack
from .codec import CorruptPageError, check_rows, require

MAX_VALUES = 65_536
"""Distinct values a dictionary holds unless told otherwise."""

MAX_BYTES = 1 << 20
"""Bytes of distinct values a dictionary holds unless told otherwise."""

_WIDTH_BYTES = 1
_CODE_TYPES = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_FIRST_SLOTS = 1024
_FIRST_BYTES = 16 << 10
_SEED = hash("nyala") >> 1
"""The interpreter's own secret against chosen collisions: another number in every process."""


class DictionaryCodec:
    """Encode a page as codes (int32, not negative) of byte strings; the dictionary lives elsewhere."""

    code = 4
    name = "dictionary"
    fills_nulls = False

    def supports(self, physical: PhysicalType) -> bool:
        """Return True for BYTES."""
        return physical is PhysicalType.BYTES

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload for a DictionaryVector, or for its codes as a FixedVector."""
        assert not isinstance(vector, BytesVector), "a DictionaryBuilder makes codes first"
        codes = vector.codes if isinstance(vector, DictionaryVector) else vector.values
        width = _code_width(int(codes.max()) if len(codes) else 0)
        payload = pack(np.ascontiguousarray(codes, _CODE_TYPES[width]), head=_WIDTH_BYTES)
        payload[0] = width
        return payload

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Check width and directory; `attach` compares the codes with the dictionary."""
        require(len(payload) >= _WIDTH_BYTES, "the page is too short for the width of its codes")
        width = int(payload[0])
        require(width in _CODE_TYPES, f"codes cannot have a width of {width} bytes")
        check_packed(payload[_WIDTH_BYTES:], width, row_count)

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> FixedVector:
        """Return the codes (int32) of rows [first, last)."""
        blocks, start = blocks_of_range(first, last, row_count)
        return FixedVector(_unpack_codes(payload, row_count, blocks)[first - start : last - start])

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> FixedVector:
        """Return the codes (int32) at ``rows``."""
        loose = loose_cells(payload, _CODE_TYPES[int(payload[0])], row_count, _WIDTH_BYTES)
        if loose is not None:
            return FixedVector(loose[check_rows(rows, row_count)].astype(np.int32))
        blocks, places = blocks_of_rows(rows, row_count)
        return FixedVector(_unpack_codes(payload, row_count, blocks)[places])

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """See ``Codec``."""
        yield 0, _WIDTH_BYTES
        yield from ranges_of_block(payload, _WIDTH_BYTES, row_count, row, int(payload[0]))

    def loosened(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> np.ndarray | None:
        """Return the payload with uncompressed blocks; None if it is already. Raises as ``decode`` does."""
        codes = _CODE_TYPES[int(payload[0])]
        if loose_cells(payload, codes, row_count, _WIDTH_BYTES) is not None:
            return None
        return loosened(payload, codes, row_count, _WIDTH_BYTES)


def attach(codes: FixedVector, dictionary: BytesVector, valid: np.ndarray | None = None) -> DictionaryVector:
    """Return the ``codes`` of a page (int32, as decoded) joined with the dictionary they number.

    Raises `CorruptPageError` when a code has no value. Where all rows are NULL the dictionary may
    be empty; their codes are 0.
    """
    limit = max(len(dictionary), 1)
    # Seen as unsigned, a negative code is a huge one.
    if len(codes) and int(codes.values.view(np.uint32).max()) >= limit:
        raise CorruptPageError(f"a code is too large for the {limit} values of the dictionary")
    return DictionaryVector(codes.values, dictionary, valid)


class DictionaryBuilder:
    """Collects the dictionary of one column while its pages are encoded: the distinct values. Not thread-safe.

    >>> builder = DictionaryBuilder()
    >>> cells = np.frombuffer(b"LAXJFKLAX", np.uint8)
    >>> builder.add(BytesVector(np.array([0, 3, 6, 9], np.int32), cells))
    array([0, 1, 0], dtype=int32)
    >>> bytes(builder.dictionary().data)
    b'LAXJFK'
    """

    def __init__(self, max_values: int = MAX_VALUES, max_bytes: int = MAX_BYTES) -> None:
        self._offsets = allocate_zeroed(max_values + 1, np.int32)
        self._hashes = allocate(max_values, np.uint32)
        self._state = np.zeros(kernels.STATE_FIELDS, np.int64)
        self._state[kernels.OFFSETS] = address_of(self._offsets)
        self._state[kernels.HASHES] = address_of(self._hashes)
        self._state[kernels.MAX_VALUES] = max_values
        self._state[kernels.MAX_BYTES] = max_bytes
        self._state[kernels.SEED] = _SEED
        self._slots = self._rehash(_FIRST_SLOTS)
        self._values = self._grow_values(min(_FIRST_BYTES, max_bytes))

    def __len__(self) -> int:
        return int(self._state[kernels.VALUE_COUNT])

    @property
    def data_bytes(self) -> int:
        """Bytes of the values collected so far."""
        return int(self._offsets[len(self)])

    def add(self, vector: BytesVector) -> np.ndarray | None:
        """Return the codes (int32) of all rows; None, and nothing added, if a limit would break.

        A NULL row gets code 0 and adds nothing.
        """
        codes = allocate(len(vector), np.int32)
        known = len(self)
        self._state[kernels.NEXT_ROW] = 0
        while (outcome := self._add_rows(vector, codes)) != kernels.DONE:
            if outcome == kernels.EXCEEDED:
                self._forget_after(known)
                return None
            if outcome == kernels.NEEDS_SLOTS:
                self._slots = self._rehash(4 * len(self._slots))
            else:
                self._values = self._grow_values(self._room_for_next(vector))
        return codes

    def dictionary(self) -> BytesVector:
        """Return the values so far, in the order of their codes; later ones do not change it."""
        offsets = allocate(len(self) + 1, np.int32)
        offsets[:] = self._offsets[: len(self) + 1]
        values = allocate(self.data_bytes, np.uint8)
        values[:] = self._values[: self.data_bytes]
        return BytesVector(offsets, values)

    def _add_rows(self, vector: BytesVector, codes: np.ndarray) -> int:
        offsets = np.ascontiguousarray(vector.offsets, np.int32)
        valid = None if vector.valid is None else np.ascontiguousarray(vector.valid, np.bool_)
        data = address_of(vector.data)
        return kernels.add_values(
            address_of(self._state),
            address_of(offsets),
            data,
            data + len(vector.data),
            0 if valid is None else address_of(valid),
            len(vector),
            address_of(codes),
        )

    def _rehash(self, slot_count: int) -> np.ndarray:
        slots = allocate_zeroed(slot_count, np.uint64)
        self._state[kernels.SLOTS] = address_of(slots)
        self._state[kernels.SLOT_COUNT] = slot_count
        kernels.fill_slots(address_of(self._state))
        return slots

    def _grow_values(self, capacity: int) -> np.ndarray:
        values = allocate(capacity + kernels.VALUE_SLACK_BYTES, np.uint8)
        if len(self):
            values[: self.data_bytes] = self._values[: self.data_bytes]
        self._state[kernels.VALUES] = address_of(values)
        self._state[kernels.VALUES_CAPACITY] = capacity
        return values

    def _room_for_next(self, vector: BytesVector) -> int:
        row = int(self._state[kernels.NEXT_ROW])
        needed = self.data_bytes + int(vector.offsets[row + 1]) - int(vector.offsets[row])
        return max(needed, 2 * int(self._state[kernels.VALUES_CAPACITY]))

    def _forget_after(self, value_count: int) -> None:
        self._state[kernels.VALUE_COUNT] = value_count
        self._slots = self._rehash(len(self._slots))


def _code_width(largest: int) -> int:
    if largest < 1 << 8:
        return 1
    return 2 if largest < 1 << 16 else 4


def _unpack_codes(payload: np.ndarray, row_count: int, blocks: np.ndarray) -> np.ndarray:
    width = int(payload[0])
    narrow = unpack(payload[_WIDTH_BYTES:], _CODE_TYPES[width], row_count, blocks)
    codes = allocate(len(narrow), np.int32)
    widen_codes(address_of(narrow), width, len(narrow), address_of(codes))
    return codes
