"""Pages that a scan takes whole and drops are read into memory that is lent; what is kept never is."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nyala.engine.cfile import page as module
from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.vectors.memory.lending import Lender
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.cells.encoding import COMPRESSIONS
from nyala.schemas.errors import CorruptionError

BLOCK = 1 << 20
ENCODINGS = [
    (physical, encoding)
    for physical in PhysicalType
    for encoding in ("plain", "bitshuffle", "run_length", "dictionary", "prefix", "frame_of_reference", "alp", "fsst")
    if codec_by_name(encoding).supports(physical)
]


class Counted(Lender):
    """Tells how many blocks somebody has."""

    def __init__(self):
        super().__init__()
        self.out = self.lent = 0

    def lend(self, length):
        self.out += 1
        self.lent += 1
        return super().lend(length)

    def take_back(self, block):
        self.out -= 1
        super().take_back(block)


def full_cache():
    """Return a cache that has no room: what is taken whole for the first time is not kept."""
    cache = PageCache(100)
    for offset in range(2):
        cache.get((99, offset), lambda: np.zeros(50, np.uint8))
    return cache


@pytest.fixture
def lender(monkeypatch):
    lender = Counted()
    monkeypatch.setattr(module, "READ_BUFFERS", lender)
    return lender


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("physical", "encoding"), ENCODINGS)
def test_no_codec_holds_on_to_a_page_that_it_decoded(lender, fs, make, physical, encoding, compression):
    vector = make.vector_of(physical, 5000, np.random.default_rng(7).random(5000) < 0.9)
    make.write(fs, {make.KEY: (physical, [vector], encoding, compression, True, 1024)})
    stream = CFileReader.open(fs, "file", make.FILE_ID, full_cache()).stream(make.KEY)
    cells = stream.read(0, 5000)
    assert lender.lent >= 5 and lender.out == 0, "all pages are back, though their cells are here"
    assert lender.idle_bytes <= 2 * BLOCK, "one page at a time is read, besides a dictionary"
    lent = [lender.lend(BLOCK // 2) for _ in range(2)]
    for memory in lent:
        memory[:] = 0xFF
    assert make.cells_of(cells) == make.cells_of(vector)


def test_what_the_cache_keeps_is_not_lent(lender, fs, make):
    vector = make.vector_of(PhysicalType.INT64, 3000)
    make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", "none")})
    cache = PageCache()
    stream = CFileReader.open(fs, "file", make.FILE_ID, cache).stream(make.KEY)
    stream.gather(np.array([5, 6]))  # wants more of the page, likely
    assert cache.size_bytes and lender.lent == 0
    cache.discard_file(make.FILE_ID)
    stream.read(0, 3000)  # there is room
    assert cache.size_bytes and lender.lent == 0
    assert make.cells_of(stream.read(0, 3000)) == make.cells_of(vector)


def test_a_full_cache_keeps_only_what_is_wanted_again(lender, fs, make):
    vector = make.vector_of(PhysicalType.INT64, 3000)
    make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", "none")})
    cache = PageCache(100_000)
    stream = CFileReader.open(fs, "file", make.FILE_ID, cache).stream(make.KEY)
    for offset in range(2):
        cache.get((99, offset), lambda: np.zeros(49_000, np.uint8))
    stream.read(0, 3000)
    assert lender.lent == 1 and (make.FILE_ID, stream.entry.pages[0].offset) not in cache
    for _ in range(40):
        stream.read(0, 3000)
    assert lender.lent < 40 and (make.FILE_ID, stream.entry.pages[0].offset) in cache


def test_memory_comes_back_from_a_page_that_is_damaged(lender, fs, make):
    vector = make.vector_of(PhysicalType.INT64, 3000)
    make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", "none")})
    stream = CFileReader.open(fs, "file", make.FILE_ID, full_cache()).stream(make.KEY)
    fs._file("file").content[100] ^= 1
    for read in (lambda: stream.read(0, 3000), lambda: stream.stored_page(0), lambda: stream.stored_page(0)):
        with pytest.raises(CorruptionError, match="checksum"):
            read()
    gc.collect()  # the frames of the errors
    assert lender.out == 0 and lender.lent >= 3


def test_threads_that_scan_at_once_see_their_own_pages(lender, fs, make):
    vectors = [make.vector_of(PhysicalType.INT64, 20_000, seed=seed) for seed in range(4)]
    streams = []
    for number, vector in enumerate(vectors):
        make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "bitshuffle", "none", True, 1024)}, f"f{number}")
        streams.append(CFileReader.open(fs, f"f{number}", make.FILE_ID, full_cache()).stream(make.KEY))

    def scan(turn):
        return make.cells_of(streams[turn % 4].read(0, 20_000)) == make.cells_of(vectors[turn % 4])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(scan, range(80)))
    assert BLOCK <= lender.idle_bytes <= 32 * BLOCK
