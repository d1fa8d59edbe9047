"""The codecs by number and by name. Which encodings fit a logical type is in `nyala.schemas.cells.encoding`."""

from ...schemas.cells.encoding import plain_name
from .bitshuffle import BitshuffleCodec
from .codec import Codec
from .dictionary import DictionaryCodec
from .frames import AlpCodec, FrameOfReferenceCodec
from .fsst import FsstCodec
from .plain import PlainCodec
from .prefix import PrefixCodec
from .run_length import RunLengthCodec
from .shredded import ShreddedCodec

_CODECS: tuple[Codec, ...] = (
    PlainCodec(),
    BitshuffleCodec(),
    RunLengthCodec(),
    DictionaryCodec(),
    PrefixCodec(),
    FrameOfReferenceCodec(),
    AlpCodec(),
    FsstCodec(),
    ShreddedCodec(),
)
_BY_CODE = {codec.code: codec for codec in _CODECS}
_BY_NAME = {codec.name: codec for codec in _CODECS}


def codec_by_code(code: int) -> Codec:
    """Return the codec of a page header's number. Raises KeyError for an unknown number."""
    return _BY_CODE[code]


def codec_by_name(name: str) -> Codec:
    """Return the codec of an encoding's name or alias (``dict``, ``rle``). Raises KeyError."""
    return _BY_NAME[plain_name(name)]
