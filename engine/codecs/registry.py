"""The codecs by number and by name.

Which encodings fit a logical type, and the default of each, is part of the clients' vocabulary:
`nyala.schemas.encoding`. Here they are only names.
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
    """Return the codec of a page header's number. Raises KeyError for an unknown number."""
    return _BY_CODE[code]


def codec_by_name(name: str) -> Codec:
    """Return the codec of an encoding's name or alias (``dict``, ``rle``). Raises KeyError."""
    return _BY_NAME[plain_name(name)]


def default_encoding(kind: LogicalType) -> str:
    """Return the name of the default encoding for columns of this type."""
    return encodings_for(kind)[0]
