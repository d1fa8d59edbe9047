"""Encodes the pages of one stream, with the fallbacks of dictionaries, and the choice of an encoding for each page.

A dictionary belongs to a whole stream and is complete only at its end, so it is written behind the pages that use it.
A stream meant to have a dictionary gets plain pages, or those that suit it (`chooser`), in two cases:

* more than half of the rows of its first full page are distinct: there is no dictionary at all;
* a page would exceed the limits of the dictionary: that page and all later ones are plain, the earlier ones keep
  their codes. (Kudu does the same at the end of a block.)
"""

from collections.abc import Sequence

import numpy as np

from ...schemas.cells.types import LogicalType
from ..codecs.chooser import candidates_of, choose
from ..codecs.codec import PAGE_ROWS, Codec
from ..codecs.compression import LZ4
from ..codecs.dictionary import DictionaryBuilder
from ..codecs.fsst import FsstCodec
from ..codecs.registry import codec_by_name
from ..codecs.shredded import ShreddedCodec
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, Vector, as_bytes
from .format import IS_DICTIONARY
from .leaf_zones import LeavesOfValues
from .page import EncodedPage, encode_page

MAX_DISTINCT_SHARE = 0.5
"""If the first full page has more distinct values than this share of its rows, a dictionary does not pay."""

_WORSE = 1.25
"""A page of strings may be larger than the one that was chosen for by this factor, counted from the bytes of both."""
_LEAST_BYTES_TO_TELL = 16 << 10
"""Fewer bytes of strings do not tell how to encode others."""


class StreamEncoder:
    """Encodes the pages of one stream of a cfile, in order, each with the one of some codecs that suits it, by a
    sample."""

    def __init__(self, physical: PhysicalType, codecs: Sequence[Codec], compression: int) -> None:
        self.physical = physical
        self.encodings: list[str] = []
        """Names of the codecs used so far, in order of first use."""
        self._codecs = codecs
        self._compression = compression
        self._chosen: Codec | None = None
        """What the last pages of strings were encoded with, and so many rows more may be."""
        self._rows_to_choose = 0
        self._chosen_ratio = 1.0

    def encode(self, cells: Vector, is_full: bool) -> tuple[EncodedPage, Vector]:
        """Return the next page of the stream, and its cells in the form whose bounds are found fastest. A page is full
        unless it is the last."""
        if isinstance(cells, DictionaryVector):
            cells = as_bytes(cells)
        if isinstance(cells, BytesVector):
            return self._page_of_text(cells), cells
        return self._page(choose(cells, self.physical, self._codecs), cells), cells

    def restart(self) -> None:
        """Begin the stream anew; what became of its first page means nothing."""
        self.encodings = []
        self._rows_to_choose = 0

    def _page_of_text(self, cells: BytesVector) -> EncodedPage:
        """Encode strings like those before, unless that does not suit them.

        A choice, and symbols for FSST, take as long for a short page as for a long one.
        """
        raw_bytes = cells.data_bytes + 4 * len(cells)
        if self._chosen is not None and self._rows_to_choose >= len(cells):
            page = encode_page(cells, self.physical, self._chosen, self._compression)
            if page.length <= _WORSE * self._chosen_ratio * raw_bytes:
                self._rows_to_choose -= len(cells)
                self._note(self._chosen.name)
                return page
        chosen = choose(cells, self.physical, self._codecs)
        self._chosen = chosen.trained(cells) if isinstance(chosen, FsstCodec) else chosen
        page = self._page(self._chosen, cells)
        self._rows_to_choose = PAGE_ROWS - len(cells) if cells.data_bytes >= _LEAST_BYTES_TO_TELL else 0
        self._chosen_ratio = page.length / max(raw_bytes, 1)
        return page

    def copies(self, encoding: str, dictionary: BytesVector | None) -> bool:
        """Prepare for a copied page of a stream with that ``dictionary``; False if it cannot be one of this stream."""
        if all(encoding != codec.name for codec in self._codecs):
            return False
        self._note(encoding)
        return True

    def dictionary_page(self) -> EncodedPage | None:
        """Return the page of distinct values for the end of the stream, if it has one."""
        return None

    def _note(self, encoding: str) -> None:
        if encoding not in self.encodings:
            self.encodings.append(encoding)

    def _page(self, codec: Codec, cells: Vector) -> EncodedPage:
        self._note(codec.name)
        return encode_page(cells, self.physical, codec, self._compression)


class DictionaryEncoder(StreamEncoder):
    """Encodes the pages of a stream of strings as codes for as long as that pays, then with other codecs."""

    def __init__(
        self, physical: PhysicalType, others: Sequence[Codec], compression: int, nested: str | None = None
    ) -> None:
        """``nested`` is the type of nested cells."""
        super().__init__(physical, others, compression)
        self._coder = codec_by_name("dictionary")
        builder = DictionaryBuilder()
        self._builder: DictionaryBuilder | None = builder
        self._values = builder.dictionary()
        self._takes_values = True
        self._page_count = 0
        self._adopted: BytesVector | None = None
        self._nested = LogicalType.parse(nested).arrow if nested else None
        self._leaves = self._new_leaves()

    def _new_leaves(self) -> LeavesOfValues | None:
        return LeavesOfValues(self._nested) if self._nested is not None else None

    def encode(self, cells: Vector, is_full: bool) -> tuple[EncodedPage, Vector]:
        """Return the next page: codes while the dictionary accepts its values, others from then on."""
        coded = self._coded(cells, is_full)
        self._page_count += 1
        if coded is None:
            return super().encode(cells, is_full)
        page = self._page(self._coder, coded)
        return (page._replace(leaves=self._leaves.zone_maps(coded)) if self._leaves else page), coded

    def restart(self) -> None:
        super().restart()
        self._page_count = 0
        if not self._takes_values:
            self._builder = None
        self._leaves = self._new_leaves()
        if self._builder is not None:
            self._builder = DictionaryBuilder()
            self._values = self._builder.dictionary()

    def copies(self, encoding: str, dictionary: BytesVector | None) -> bool:
        if encoding == self._coder.name:
            if not self._adopts(dictionary):
                return False
            self._note(encoding)
        elif not super().copies(encoding, dictionary):
            return False
        elif self._page_count == 0 and dictionary is None:
            self._builder = None  # a dictionary did not pay there
        self._page_count += 1
        return True

    def _adopts(self, dictionary: BytesVector | None) -> bool:
        """Start with another stream's dictionary, so that its codes are valid here; later values are appended."""
        if self._page_count == 0 and dictionary is not None and self._builder is not None:
            self._adopted = dictionary
            if self._builder.add(dictionary) is None or len(self._builder) < len(dictionary):
                self._builder = DictionaryBuilder()  # values beyond the limits
                return False
            self._values = self._builder.dictionary()
        return dictionary is not None and self._adopted is dictionary and self._builder is not None

    def dictionary_page(self) -> EncodedPage | None:
        if self._builder is None or len(self._builder) == 0:
            return None
        plain = codec_by_name("plain")
        return encode_page(self._builder.dictionary(), self.physical, plain, LZ4, IS_DICTIONARY)

    def _codes(self, builder: DictionaryBuilder, cells: Vector) -> np.ndarray | None:
        """Return the codes of the cells, after adding their values to the dictionary; None if it would be too large."""
        if cells.valid is not None and not cells.valid.any():
            return np.zeros(len(cells), np.int32)
        if isinstance(cells, DictionaryVector):
            return _recoded(builder, cells)
        assert isinstance(cells, BytesVector)
        return builder.add(cells)

    def _coded(self, cells: Vector, is_full: bool) -> DictionaryVector | None:
        """Return the cells as codes of the stream's dictionary, or None if they must be plain."""
        if self._builder is None or not self._takes_values:
            return None
        codes = self._codes(self._builder, cells)
        if codes is None:
            self._takes_values = False
            return None
        if self._page_count == 0 and is_full and len(self._builder) > MAX_DISTINCT_SHARE * len(cells):
            self._builder = None
            return None
        if len(self._values) < len(self._builder):
            self._values = self._builder.dictionary()
        return DictionaryVector(codes, self._values, cells.valid)


def _recoded(builder: DictionaryBuilder, cells: DictionaryVector) -> np.ndarray | None:
    """Return the codes of cells that have codes already: looks up each distinct value once."""
    used = np.zeros(len(cells.dictionary), np.bool_)
    used[cells.codes if cells.valid is None else cells.codes[cells.valid]] = True
    old_codes = np.flatnonzero(used)
    new_codes = builder.add(cells.dictionary.take(old_codes))
    if new_codes is None:
        return None
    mapping = np.zeros(len(used), np.int32)
    mapping[old_codes] = new_codes
    codes = mapping[cells.codes]
    if cells.valid is not None:
        codes[~cells.valid] = 0
    return codes


def stream_encoder(
    physical: PhysicalType, codec: Codec | None, compression: int, nested: str | None = None
) -> StreamEncoder:
    """Return the encoder of a new stream of a cfile with the given ``codec``; with None each page gets one that suits
    it. ``nested`` is the type of nested cells, without which they are not taken apart."""
    plain = codec_by_name("plain")
    if isinstance(codec, ShreddedCodec):
        codec = ShreddedCodec(nested) if nested else plain
    if codec and codec.name != "dictionary":
        return StreamEncoder(physical, [codec], compression)
    others = [plain] if codec else candidates_of(physical)
    if nested and not codec:
        others = [plain, ShreddedCodec(nested)]
    if physical is PhysicalType.BYTES:
        return DictionaryEncoder(physical, others, compression, nested)
    return StreamEncoder(physical, others, compression)
