"""What the dictionary of a stream makes of cells that have codes already."""

import numpy as np

from nyala.engine.cfile.encoder import DictionaryEncoder, stream_encoder
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import DictionaryVector


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
