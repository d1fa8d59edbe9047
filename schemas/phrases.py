"""Phrases in texts for people: counts, sizes, and the name that somebody may have meant by an unknown one."""

from collections.abc import Iterable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_COMPARED_MAX = 1000
_LONGEST = 64


def counted(count: int, noun: str) -> str:
    """Return a number of things in words, such as ``1 task`` or ``4,000 tasks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """Return a number of bytes, such as ``2.5 MiB``."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} B"


def perhaps(name: str, known: Iterable[str]) -> str:
    """Return ``, perhaps 'city'`` for an error about ``citty``, if a known name differs in few letters; else ''."""
    from difflib import get_close_matches  # an error may take time, a start may not

    shown = {each.lower(): each for each in list(known)[:_COMPARED_MAX]}
    nearest = get_close_matches(name.lower()[:_LONGEST], shown, 1, 0.7)
    return f", perhaps {shown[nearest[0]]!r}" if nearest else ""
