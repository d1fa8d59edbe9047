"""A quick proof that the compiled kernels do what they should: round trips of small data."""

import numpy as np

from ..pages import blocks, dictionary, frame_pages, frames, fsst, prefix, run_length

_ANY_FORM = 31
_ROWS = 1_100  # one whole mini-block, and one that ends in the middle of a tile


def self_test() -> bool:
    """Test the compiled kernels: return whether those of every codec give back what they were given."""
    return (
        all(_blocks_round_trip(width) for width in (1, 2, 4, 8, 16))
        and all(_runs_round_trip(width) for width in (1, 2, 4, 8))
        and all(_frames_round_trip(cells) for width in (1, 2, 4, 8) for cells in _integers(f"i{width}"))
        and all(_frames_round_trip((np.arange(_ROWS) % 100 / 4).astype(f"f{width}")) for width in (4, 8))
        and _prefix_round_trip()
        and _fsst_round_trip()
        and _dictionary_codes() == [0, 1, 0, 2]
    )


def _room(size: int) -> tuple[np.ndarray, int]:
    """Return memory, which lives as long as the array is referred to, and its address."""
    memory = np.zeros(size + 1024, np.uint8)
    return memory, memory.ctypes.data


def _blocks_round_trip(width: int) -> bool:
    cells = np.arange(_ROWS * width, dtype=np.uint32).view(np.uint8)[: _ROWS * width]
    numbers = np.arange(2)
    _payload, start = _room(2 * cells.size)
    restored, target = _room(cells.size)
    _scratch, scratch_start = _room(blocks.SCRATCH_BYTES)
    source = np.ascontiguousarray(cells)
    blocks.pack_blocks(source.ctypes.data, _ROWS, width, start, start + 8, scratch_start)
    outcome = blocks.unpack_blocks(start, _ROWS, width, numbers.ctypes.data, 2, target, scratch_start)
    return outcome == 0 and bool((restored[: cells.size] == cells).all())


def _runs_round_trip(width: int) -> bool:
    cells = np.repeat(np.arange(_ROWS // 5, dtype=f"u{width}"), 5)
    _lasts, lasts_start = _room(2 * cells.size)
    _taken, taken_start = _room(cells.nbytes)
    restored, target = _room(cells.nbytes)
    runs = run_length.find_runs(cells.ctypes.data, cells.size, width, lasts_start)
    run_length.take_cells(cells.ctypes.data, width, lasts_start, runs, taken_start)
    run_length.write_runs(lasts_start, taken_start, width, 0, cells.size, 0, target)
    return restored[: cells.nbytes].tobytes() == cells.tobytes()


def _integers(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers close to each other, and a few far apart."""
    rows = np.arange(_ROWS)
    return (rows % 25).astype(dtype), (rows % 7 * 0x517CC1B727220A95).astype(dtype)


def _frames_round_trip(cells: np.ndarray) -> bool:
    cells[::400] = -1.03
    width, is_real = cells.itemsize, cells.dtype.kind == "f"
    _payload, start = _room(2 * frames.FRAME_BYTES + 8 * _ROWS)
    _scratch, scratch_start = _room(frame_pages.SCRATCH_BYTES)
    restored, target = _room(cells.nbytes)
    pack = frame_pages.pack_reals if is_real else frame_pages.pack_frames
    size = pack(cells.ctypes.data, _ROWS, width, 0, start, scratch_start)
    if frames.check_frames(start, size + frames.TAIL_BYTES, _ROWS, width, _ANY_FORM) != 0:
        return False
    frame_pages.unpack_frames(start, _ROWS, width, 0, 2, target, scratch_start)
    return restored[: cells.nbytes].tobytes() == cells.tobytes()


def _strings(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(texts), np.uint8)


def _prefix_round_trip() -> bool:
    offsets, data = _strings([b"row %06d" % row for row in range(_ROWS)])
    numbers = np.arange(2)
    _payload, start = _room(data.size + 6 * _ROWS)
    restored, target = _room(data.size)
    restored_offsets, offsets_start = _room(offsets.nbytes)
    end = data.ctypes.data + data.size
    size = prefix.pack_blocks(offsets.ctypes.data, data.ctypes.data, end, _ROWS, start, start + 8)
    if prefix.check_blocks(start, _ROWS) != 0:
        return False
    prefix.measure_blocks(start, _ROWS, numbers.ctypes.data, 2, offsets_start)
    prefix.restore_blocks(start, start + 8 + size, _ROWS, numbers.ctypes.data, 2, target)
    same_offsets = restored_offsets[: offsets.nbytes].tobytes() == offsets.tobytes()
    return same_offsets and restored[: data.size].tobytes() == data.tobytes()


def _fsst_round_trip() -> bool:
    offsets, data = _strings([b"row %06d" % row for row in range(_ROWS)])
    texts = offsets.ctypes.data, data.ctypes.data, data.ctypes.data + data.size
    numbers = np.arange(2)
    _coder, coder = _room(fsst.CODER_BYTES)
    _symbols, symbols = _room(256 * 9)
    _payload, start = _room(2 * data.size + 8 * _ROWS)
    _scratch, scratch = _room(2 * data.size + 8 * _ROWS)
    restored, target = _room(data.size)
    restored_offsets, offsets_start = _room(offsets.nbytes)
    count = fsst.train(coder, *texts, _ROWS, 1)
    fsst.write_symbols(coder, count, symbols)
    size = fsst.pack_strings(coder, *texts, _ROWS, start, start + 8, scratch)
    which = start, _ROWS, numbers.ctypes.data, 2
    if size >= data.size or fsst.check_strings(start, _ROWS) != 0 or fsst.measure_strings(*which) != data.size:
        return False
    if fsst.unpack_strings(symbols, count, *which, offsets_start + 4, target) != 0:
        return False
    same_offsets = restored_offsets[: offsets.nbytes].tobytes() == offsets.tobytes()
    return same_offsets and restored[: data.size].tobytes() == data.tobytes()


def _dictionary_codes() -> list[int]:
    offsets, data = _strings([b"LAX", b"a value of more than 16 bytes", b"LAX", b""])
    rooms = {
        dictionary.SLOTS: _room(8 * 16),
        dictionary.HASHES: _room(4 * 8),
        dictionary.OFFSETS: _room(4 * 9),
        dictionary.VALUES: _room(64),
    }
    state = np.zeros(dictionary.STATE_FIELDS, np.int64)
    for field, (_, address) in rooms.items():
        state[field] = address
    state[dictionary.SLOT_COUNT] = 16
    state[dictionary.VALUES_CAPACITY] = state[dictionary.MAX_BYTES] = 64
    state[dictionary.MAX_VALUES] = 8
    codes = np.full(4, -1, np.int32)
    dictionary.add_values(
        state.ctypes.data,
        offsets.ctypes.data,
        data.ctypes.data,
        data.ctypes.data + data.size,
        0,
        4,
        codes.ctypes.data,
    )
    return codes.tolist()
