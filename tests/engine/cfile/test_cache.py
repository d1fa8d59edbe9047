"""The page cache holds the pages used last, never more bytes than it may."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.vectors.physical import PhysicalType


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
    cache = PageCache(30)
    for offset in range(3):
        cache.get((1, offset), page(10))
    cache.get((1, 0), fail)
    cache.get((1, 3), page(10))
    cache.get((1, 0), fail)
    cache.get((1, 2), fail)
    misses = cache.misses
    cache.get((1, 1), page(10))
    assert cache.misses == misses + 1 and cache.size_bytes == 30


def test_a_page_larger_than_the_cache_is_not_kept():
    cache = PageCache(30)
    cache.get((1, 0), page(20))
    cache.get((1, 1), page(31))
    assert cache.size_bytes == 20
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


def test_only_compressed_pages_enter_and_close_takes_them_out(fs, make):
    vector = make.vector_of(PhysicalType.INT64, 3000)
    cache = PageCache()
    for path, compression in (("raw", "none"), ("packed", "zstd")):
        make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", compression)}, path)
    CFileReader.open(fs, "raw", make.FILE_ID, cache).stream(make.KEY).read(0, 3000)
    assert cache.misses == 0
    reader = CFileReader.open(fs, "packed", make.FILE_ID, cache)
    for _ in range(3):
        reader.stream(make.KEY).read(0, 3000)
    assert cache.misses == 1 and cache.size_bytes == vector.values.nbytes
    reader.close()
    assert cache.size_bytes == 0
    assert make.cells_of(reader.stream(make.KEY).read(0, 3000)) == make.cells_of(vector)
