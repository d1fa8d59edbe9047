"""The page cache holds the pages used last, never more bytes than it may."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.errors import CorruptionError


def page(size):
    return lambda: np.zeros(size, np.uint8)


def fail():
    raise AssertionError("loaded a page that should be there")


def test_a_page_is_loaded_once():
    cache = PageCache(100)
    first = cache.get((1, 0), page(10))
    assert cache.get((1, 0), fail) is first
    assert (cache.hits, cache.misses, cache.size_bytes) == (1, 1, 10)


def test_the_page_unused_longest_goes_first():
    cache = PageCache(60)
    for offset in range(6):  # the last three are the recent ones, the others are kept
        cache.get((1, offset), page(10))
    for offset in (3, 0, 1):
        cache.get((1, offset), fail)
    cache.get((1, 6), page(10))
    for offset in (0, 1, 2, 3, 5, 6):
        cache.get((1, offset), fail)
    misses = cache.misses
    cache.get((1, 4), page(10))
    assert cache.misses == misses + 1 and cache.size_bytes == 60


def test_a_scan_of_more_than_the_cache_holds_leaves_most_of_it():
    cache = PageCache(1000)
    for _ in range(4):
        for offset in range(150):
            cache.get((1, offset), page(10))
            cache.get((1, offset), fail)  # what was just read is there
    assert cache.hits - 600 >= 100  # a cache of the last used pages alone would be asked for none of them in time
    assert cache.size_bytes <= 1000


def test_what_is_asked_for_again_and_again_comes_to_stay():
    cache = PageCache(200)
    for offset in range(100):
        cache.get((1, offset), page(10))
    loaded = 0

    def load():
        nonlocal loaded
        loaded += 1
        return np.zeros(10, np.uint8)

    for turn in range(400):
        cache.get((2, turn % 5), load)
        for offset in range(3):
            cache.get((3, 3 * turn + offset), page(10))
    assert loaded < 100


def test_a_page_larger_than_half_of_the_cache_is_not_kept():
    cache = PageCache(30)
    cache.get((1, 0), page(15))
    cache.get((1, 1), page(16))
    assert cache.size_bytes == 15
    cache.get((1, 0), fail)


def test_the_pages_of_a_file_go_together():
    cache = PageCache(100)
    for file_id in (1, 2):
        cache.get((file_id, 0), page(10))
    cache.discard_file(1)
    assert cache.size_bytes == 10
    cache.get((2, 0), fail)


def test_many_threads_keep_the_account():
    cache = PageCache(500)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda turn: cache.get((turn % 7, turn % 31), page(turn % 31)), range(20_000)))
    assert cache.size_bytes <= 500
    assert cache.hits + cache.misses == 20_000
    for file_id in range(7):
        cache.discard_file(file_id)
    assert cache.size_bytes == 0


def test_pages_enter_decompressed_and_close_takes_them_out(fs, make):
    vector = make.vector_of(PhysicalType.INT64, 3000)
    for path, compression in (("raw", "none"), ("packed", "zstd")):
        cache = PageCache()
        make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", compression)}, path)
        reader = CFileReader.open(fs, path, make.FILE_ID, cache)
        stream = reader.stream(make.KEY)
        stream.read(0, 3000)
        for _ in range(3):
            stream.read(0, 3000)
        assert cache.misses == 1
        assert vector.values.nbytes <= cache.size_bytes <= vector.values.nbytes + 100
        reader.close()
        assert cache.size_bytes == 0
        assert make.cells_of(reader.stream(make.KEY).read(0, 3000)) == make.cells_of(vector)


def test_a_page_that_came_from_the_file_again_is_verified_again(fs, make):
    vector = make.vector_of(PhysicalType.INT64, 3000)
    make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", "none")}, "file")
    cache = PageCache(1 << 20)
    stream = CFileReader.open(fs, "file", make.FILE_ID, cache).stream(make.KEY)
    cells = make.cells_of(stream.read(0, 3000))
    stream.read(0, 2999)  # not the whole page, which is kept therefore
    fs._file("file").content[1000] ^= 1
    assert make.cells_of(stream.read(0, 3000)) == cells  # in memory of ours
    cache.discard_file(make.FILE_ID)
    for read in (lambda: stream.read(0, 3000), lambda: stream.gather(np.array([7])), lambda: stream.stored_page(0)):
        with pytest.raises(CorruptionError, match="checksum"):
            read()


def test_the_room_of_a_cache_may_change_at_any_time():
    cache, room = PageCache(), [4 << 20]
    cache.take_room(lambda: room[0])
    for offset in range(128):
        cache.get((1, offset), page(64 << 10))
    assert (3 << 20) < cache.size_bytes <= cache.capacity_bytes == 4 << 20
    room[0] = 1 << 20
    cache.fit()
    assert (1 << 19) < cache.size_bytes <= cache.capacity_bytes == 1 << 20
    cache.get((1, 127), fail)  # the pages used last stay
    room[0] = 64 << 20
    for offset in range(128, 128 + 512):
        cache.get((1, offset), page(64 << 10))
    assert cache.capacity_bytes == 64 << 20  # measured on the way
    assert cache.size_bytes > 20 << 20  # those of the time before found no room


def test_a_cache_without_room_keeps_nothing():
    cache = PageCache()
    cache.get((1, 0), page(10))
    cache.take_room(lambda: 0)
    assert cache.size_bytes == 0 and (1, 0) not in cache
    cache.discard_file(1)
