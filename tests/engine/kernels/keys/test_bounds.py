"""How far kernels write past their results: no further than they say."""

import numpy as np
import pytest
from lz4 import block

from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.kernels.pages import blocks, fsst, lz4, prefix, run_length
from nyala.engine.kernels.reads import morsel, point_read
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector

MARK = 0xA5


def marked(size: int) -> np.ndarray:
    return np.full(size, MARK, np.uint8)


def untouched_after(memory: np.ndarray, size: int) -> bool:
    return bool((memory[size:] == MARK).all())


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [1, 64, 65, 1000])
def test_runs(width, rows):
    cells = np.random.default_rng(rows).integers(0, 2, rows).astype(f"u{width}")
    lasts = marked(2 * rows + 256)
    found = run_length.find_runs(cells.ctypes.data, rows, width, lasts.ctypes.data)
    assert untouched_after(lasts, 2 * found + run_length.LASTS_SLACK_BYTES)
    taken = marked(found * width + 256)
    run_length.take_cells(cells.ctypes.data, width, lasts.ctypes.data, found, taken.ctypes.data)
    assert untouched_after(taken, found * width)
    target = marked(rows * width + 256)
    run_length.write_runs(lasts.ctypes.data, taken.ctypes.data, width, 0, rows, 0, target.ctypes.data)
    assert target[: cells.nbytes].tobytes() == cells.tobytes()
    assert untouched_after(target, cells.nbytes + run_length.FILL_SLACK_BYTES)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_noise_that_lz4_makes_larger(width):
    cells = np.random.default_rng(width).integers(0, 256, 1500 * width, dtype=np.uint8)
    scratch = np.zeros(blocks.SCRATCH_BYTES, np.uint8)
    target = marked(8 + cells.size + 512)
    start = target.ctypes.data
    packed = blocks.pack_blocks(cells.ctypes.data, 1500, width, start, start + 8, scratch.ctypes.data)
    assert packed == cells.size
    assert untouched_after(target, 8 + cells.size + blocks.PACK_SLACK_BYTES)


def test_strings_restored():
    texts = [b"row %d" % row for row in range(1500)]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    payload = marked(8 + 2 + 5 * 1500 + data.size + 256)
    start, end = payload.ctypes.data, data.ctypes.data + data.size
    size = prefix.pack_blocks(offsets.ctypes.data, data.ctypes.data, end, 1500, start, start + 8)
    assert untouched_after(payload, 8 + size + prefix.COPY_SLACK_BYTES)
    numbers = np.arange(2)
    target = marked(data.size + 256)
    prefix.restore_blocks(start, start + 8 + size, 1500, numbers.ctypes.data, 2, target.ctypes.data)
    assert target[: data.size].tobytes() == data.tobytes()
    assert untouched_after(target, data.size + prefix.COPY_SLACK_BYTES)


def test_lz4_never_writes_past_its_target():
    raw = b"abcdefgh" * 1000
    packed = np.frombuffer(block.compress(raw, store_size=False), np.uint8)
    target = marked(9000)
    for capacity in (0, 1, 100, 7999):
        assert lz4.decompress_block(packed.ctypes.data, packed.size, target.ctypes.data, capacity) < 0
        assert untouched_after(target, capacity)
    written = lz4.decompress_block(packed.ctypes.data, packed.size, target.ctypes.data, 8000)
    assert written == 8000 and target[:8000].tobytes() == raw
    assert untouched_after(target, 8000)


@pytest.mark.parametrize("rows", [1, 1000, 1024, 2049])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_a_morsel_of_numbers(width, rows):
    cells = np.random.default_rng(rows).integers(0, 9, rows * width, dtype=np.uint8)
    count = -(-rows // 1024)
    payload, scratch = marked(4 * count + cells.size + 512), np.zeros(morsel.SCRATCH_BYTES, np.uint8)
    start = payload.ctypes.data
    blocks.pack_blocks(cells.ctypes.data, rows, width, start, start + 4 * count, scratch.ctypes.data)
    for first, last in ((0, rows), (rows // 3, rows), (0, rows - rows // 3)):
        target = marked((last - first) * width + 256)
        column = np.zeros(morsel.COLUMN_FIELDS, np.int64)
        column[[morsel.WIDTH, morsel.TARGET, morsel.PARTS]] = width, target.ctypes.data, 1
        part = np.array([point_read.SHUFFLED, start, rows, first, last, 0])
        assert not morsel.read_morsel(column.ctypes.data, 1, part.ctypes.data, 0, first, last, scratch.ctypes.data)
        assert target[: (last - first) * width].tobytes() == cells[first * width : last * width].tobytes()
        assert untouched_after(target, (last - first) * width + morsel.TARGET_SLACK_BYTES)


def test_a_morsel_of_strings():
    values = [b"", b"a", b"abcdefghijklmnop", b"abcdefghijklmnopqrstuvwxyz"]
    codes = np.random.default_rng(0).integers(0, 4, 1500).astype(np.uint8)
    payload, scratch = marked(9 + codes.size + 512), np.zeros(morsel.SCRATCH_BYTES, np.uint8)
    start = payload.ctypes.data
    payload[0] = 1
    blocks.pack_blocks(codes.ctypes.data, 1500, 1, start + 1, start + 9, scratch.ctypes.data)
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    data = np.frombuffer(b"".join(values) + bytes(64), np.uint8)
    expected = b"".join(values[code] for code in codes)
    part = np.array([point_read.CODES, start, 1500, 0, 1500, 0])
    column = np.zeros(morsel.COLUMN_FIELDS, np.int64)
    column[[morsel.FORM, morsel.PARTS, morsel.VALUE_COUNT, morsel.LONGEST]] = morsel.AS_STRINGS, 1, 4, 26
    column[[morsel.OFFSETS, morsel.VALUES]] = offsets.ctypes.data, data.ctypes.data
    tables = column.ctypes.data, 1, part.ctypes.data, 0, 0, 1500, scratch.ctypes.data
    needed = len(expected) // 2
    while needed > column[morsel.CAPACITY]:
        column[morsel.CAPACITY] = needed
        target, ends = marked(needed + 256), marked(4 * 1501 + 64)
        column[[morsel.TARGET, morsel.ENDS]] = target.ctypes.data, ends.ctypes.data
        unfinished = morsel.read_morsel(*tables)
        needed = int(column[morsel.RESULT])
        assert unfinished == (needed > column[morsel.CAPACITY])
        assert untouched_after(target, int(column[morsel.CAPACITY]) + morsel.TARGET_SLACK_BYTES)
        assert untouched_after(ends, 4 * 1501)
    assert target[:needed].tobytes() == expected
    assert ends[: 4 * 1501].view(np.int32).tolist() == [0, *np.cumsum([len(values[code]) for code in codes])]
    column[morsel.VALUE_COUNT] = 3
    assert morsel.read_morsel(*tables) == 1 and column[morsel.RESULT] == morsel.DAMAGED


@pytest.mark.parametrize(("kind", "codec"), [(point_read.PREFIXES, "prefix"), (point_read.SYMBOLS, "fsst")])
@pytest.mark.parametrize("rows", [1, 1024, 2500])
def test_strings_that_are_restored(kind: int, codec: str, rows: int) -> None:
    texts = [b"text %d " % (row // 3) * (row % 5) for row in range(rows)]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    vector = BytesVector(offsets, np.frombuffer(b"".join(texts) + bytes(64), np.uint8))
    payload = codec_by_name(codec).encode(vector, PhysicalType.BYTES).copy()
    page, scratch = payload.ctypes.data, np.zeros(morsel.SCRATCH_BYTES, np.uint8)
    for first, last in ((0, rows), (rows // 3, rows), (rows // 3, rows - rows // 4)):
        room = morsel.strings_bytes(kind, page, rows, first, last)
        target, ends = marked(room + 256), marked(4 * (last - first + 1) + 64)
        column = np.zeros(morsel.COLUMN_FIELDS, np.int64)
        column[[morsel.FORM, morsel.PARTS, morsel.CAPACITY]] = morsel.AS_STRINGS, 1, room
        column[[morsel.TARGET, morsel.ENDS]] = target.ctypes.data, ends.ctypes.data
        part = np.array([kind, page, rows, first, last, 0])
        assert not morsel.read_morsel(column.ctypes.data, 1, part.ctypes.data, 0, first, last, scratch.ctypes.data)
        expected = b"".join(texts[first:last])
        assert column[morsel.RESULT] == len(expected) <= room
        assert target[: len(expected)].tobytes() == expected
        assert (
            ends[: 4 * (last - first + 1)].view(np.int32).tolist()
            == (offsets[first : last + 1] - offsets[first]).tolist()
        )
        assert untouched_after(target, room + morsel.TARGET_SLACK_BYTES)
        assert untouched_after(ends, 4 * (last - first + 1))
    read = fsst.read_string if kind == point_read.SYMBOLS else prefix.read_string
    for row in range(0, rows, 7):
        room = 0
        while read(page, rows, row, marked(room + 64).ctypes.data, room) == point_read.FULL:
            room += 1
        target = marked(room + 256)
        assert read(page, rows, row, target.ctypes.data, room) == len(texts[row]) <= room
        assert target[: len(texts[row])].tobytes() == texts[row]
        assert untouched_after(target, room + point_read.TEXTS_SLACK_BYTES)
