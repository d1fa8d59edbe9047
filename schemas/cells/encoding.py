"""The encodings of each type, and the page compressions: names that both sides use."""

from .types import LogicalType

COMPRESSIONS = ("none", "lz4", "zstd", "zlib", "snappy")
"""Page compressions, on top of the encoding."""

AUTO = "auto"
"""Each page is stored in the encoding that suits its cells. In files it never appears: pages name theirs."""

_ALIASES = {"dict": "dictionary", "rle": "run_length", "bit_shuffle": "bitshuffle", "for": "frame_of_reference"}


_DECIMAL64_DIGITS = 18
"""The most digits of a decimal in 8 bytes."""


def plain_name(encoding: str) -> str:
    """Return the name under which an encoding of cells is stored: ``dict`` is ``dictionary``, ``rle`` ``run_length``,
    ``for`` ``frame_of_reference``."""
    name = encoding.lower()
    return _ALIASES.get(name, name)


def encodings_for(kind: LogicalType) -> tuple[str, ...]:
    """Return the encodings that fit a type of cells, the default first.

    >>> encodings_for(LogicalType("bool"))
    ('run_length', 'plain', 'auto')
    >>> encodings_for(LogicalType("double"))
    ('auto', 'bitshuffle', 'plain', 'alp')
    """
    known = _encodings_for(kind)
    return (AUTO, *known) if len(known) > 2 else (*known, AUTO)


def fitting_encoding(encoding: str, kind: LogicalType) -> str:
    """Return ``encoding``, or the default of the type if the type cannot have it, as when its column was widened.

    A name that no type has is of a later version, and stays.

    >>> fitting_encoding("frame_of_reference", LogicalType.parse("decimal(30,2)"))
    'bitshuffle'
    """
    fitting = encodings_for(kind)
    return fitting[0] if encoding in _NAMES and encoding not in fitting else encoding


def _encodings_for(kind: LogicalType) -> tuple[str, ...]:
    if kind.name == "bool":
        return ("run_length", "plain")
    if kind.is_nested:
        return ("dictionary", "plain", "shredded")
    if kind.is_variable:
        return ("dictionary", "plain", "prefix", "fsst")
    if kind.name == "uint64":
        return ("bitshuffle", "plain")
    if kind.is_integer or kind.name.startswith(("date", "timestamp", "time32", "time64", "duration")):
        return ("bitshuffle", "plain", "run_length", "frame_of_reference")
    if kind.name == "decimal" and kind.precision <= _DECIMAL64_DIGITS:
        return ("bitshuffle", "plain", "frame_of_reference")
    if kind.is_floating:
        return ("bitshuffle", "plain", "alp")
    return ("bitshuffle", "plain")


_NAMES = {
    name
    for kind in ("bool", "int64", "double", "string", "list<int8>")
    for name in encodings_for(LogicalType.parse(kind))
}
