"""The codecs by number and by name.

Which encodings fit a logical type, and the default of each, is part of the words that clients know:
`nyala.schemas.encoding`. It is repeated here by name only.
"""

from ...schemas.encoding import encodings_for, plain_name
from ...schemas.types import LogicalType
from .bitshuffle import BitshuffleCodec
from .codec import Codec
from .dictionary import DictionaryCodec
from .plain import PlainCodec
from .prefix import PrefixCodec
from .run_length import RunLengthCodec

__all__ = ["codec_by_code", "codec_by_name", "default_encoding", "encodings_for"]

_CODECS: tuple[Codec, ...] = (PlainCodec(), BitshuffleCodec(), RunLengthCodec(), DictionaryCodec(), PrefixCodec())
_BY_CODE = {codec.code: codec for codec in _CODECS}
_BY_NAME = {codec.name: codec for codec in _CODECS}


def codec_by_code(code: int) -> Codec:
    """Return the codec that a page header names. Raises KeyError for an unknown number."""
    return _BY_CODE[code]


def codec_by_name(name: str) -> Codec:
    """Return the codec of an encoding's name or alias (``dict``, ``rle``). Raises KeyError."""
    return _BY_NAME[plain_name(name)]


def default_encoding(kind: LogicalType) -> str:
    """Return the name of the encoding that a column of this type gets unless told otherwise."""
    return encodings_for(kind)[0]
