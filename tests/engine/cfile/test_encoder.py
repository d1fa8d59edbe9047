"""What the dictionary of a stream makes of cells that have codes already; pages with encodings of their own."""

import numpy as np

from nyala.engine.cfile.encoder import DictionaryEncoder, stream_encoder
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import DictionaryVector, FixedVector


def encoder():
    return stream_encoder(PhysicalType.BYTES, codec_by_name("dictionary"), 0)


def test_codes_of_another_dictionary_are_translated(make):
    stream = encoder()
    assert isinstance(stream, DictionaryEncoder)
    stream.encode(make.strings([b"first"]), is_full=False)
    valid = np.array([True, False, True])
    cells = DictionaryVector(np.array([2, 0, 0], np.int32), make.strings([b"x", b"unused", b"z"]), valid)
    _, coded = stream.encode(cells, is_full=False)
    assert isinstance(coded, DictionaryVector)
    assert make.cells_of(coded) == make.cells_of(cells)
    assert coded.codes[1] == 0, "the code under a NULL is 0"
    assert len(coded.dictionary) == 3, "values that no row uses are left out"


def test_codes_whose_values_do_not_fit_make_a_plain_page(make):
    stream = encoder()
    large = make.strings([b"%07d" % number * 20 for number in range(9000)])
    cells = DictionaryVector(np.arange(9000, dtype=np.int32), large)
    _, encoded = stream.encode(cells, is_full=False)
    assert stream.encodings == ["plain"]
    assert make.cells_of(encoded) == make.cells_of(cells)
    assert stream.dictionary_page() is None


def test_a_page_after_the_dictionary_is_full_is_plain(make):
    stream = encoder()
    stream.encode(make.strings([b"a", b"b"]), is_full=False)
    stream.encode(make.strings([b"%07d" % number * 20 for number in range(9000)]), is_full=False)
    stream.encode(make.strings([b"a", b"b"]), is_full=False)
    assert stream.encodings == ["dictionary", "plain"]
    _, last = stream.encode(make.strings([b"a"]), is_full=False)
    assert not isinstance(last, DictionaryVector)
    page = stream.dictionary_page()
    assert page is not None and page.header.row_count == 2


def pages_of_all_kinds():
    random = np.random.default_rng(2)
    return [
        np.arange(PAGE_ROWS) * 1000 + random.integers(0, 900, PAGE_ROWS),
        random.integers(0, 16, PAGE_ROWS) | random.integers(0, 16, PAGE_ROWS) << 40,
        np.repeat(random.integers(0, 10**6, 70), 1000)[:PAGE_ROWS],
        random.integers(0, 5, 300),
    ]


def test_pages_of_one_stream_have_the_encodings_that_suit_them(stored):
    pages = pages_of_all_kinds()
    valid = np.random.default_rng(3).random(sum(map(len, pages))) < 0.9
    cells = FixedVector(np.where(valid, np.concatenate(pages), 0), valid)
    stream = stored(PhysicalType.INT64, [cells], "auto")
    names = [stream.page(number).codec.name for number in range(4)]
    assert names[:2] == ["frame_of_reference", "bitshuffle"] and "auto" not in stream.encoding_names
    assert list(dict.fromkeys(names)) == stream.encoding_names
    found = stream.read(0, len(cells))
    assert (found.valid == valid).all() and (found.values == cells.values).all()
    rows = np.random.default_rng(4).integers(0, len(cells), 5000)
    assert (stream.gather(rows).values == found.values[rows]).all()
    assert [zone.min for zone in stream.zone_maps] == [
        int(page[valid[first : first + len(page)]].min())
        for page, first in zip(pages, range(0, len(cells), PAGE_ROWS), strict=True)
    ]


def test_any_encoding_that_could_be_chosen_is_copied():
    chooses = stream_encoder(PhysicalType.INT64, None, 0)
    for name in ("bitshuffle", "frame_of_reference", "run_length", "plain"):
        assert chooses.copies(name, None)
    assert not chooses.copies("prefix", None)
    assert chooses.encodings == ["bitshuffle", "frame_of_reference", "run_length", "plain"]
    assert isinstance(stream_encoder(PhysicalType.BYTES, None, 0), DictionaryEncoder)
