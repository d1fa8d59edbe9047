"""The encodings of each type, and the page compressions: names that both sides use."""

from .types import LogicalType

COMPRESSIONS = ("none", "lz4", "zstd", "zlib", "snappy")
"""Page compressions, on top of the encoding."""

_ALIASES = {"dict": "dictionary", "rle": "run_length", "bit_shuffle": "bitshuffle"}


def plain_name(encoding: str) -> str:
    """Return the name under which an encoding is stored: ``dict`` is ``dictionary``, ``rle`` ``run_length``."""
    name = encoding.lower()
    return _ALIASES.get(name, name)


def encodings_for(kind: LogicalType) -> tuple[str, ...]:
    """Return the encodings that fit a type, the default first.

    >>> encodings_for(LogicalType("bool"))
    ('run_length', 'plain')
    """
    if kind.name == "bool":
        return ("run_length", "plain")
    if kind.is_variable:
        return ("dictionary", "plain", "prefix")
    if kind.is_integer or kind.name in ("date", "timestamp[us]"):
        return ("bitshuffle", "plain", "run_length")
    return ("bitshuffle", "plain")
