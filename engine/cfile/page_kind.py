"""The kind of a page for the kernels that read it, and the place where its cells begin."""

from ..kernels.reads.point_read import (
    BITS,
    CODES,
    FIXED,
    FRAMES,
    NULLS,
    PREFIXES,
    RUNS,
    SHUFFLED,
    STRINGS,
    SYMBOLS,
    UNREAD,
)
from ..vectors.memory.memory import address_of, address_or_0
from ..vectors.physical import PhysicalType
from .page import Page


def kind_of(page: Page, physical: PhysicalType) -> tuple[int, int]:
    """Return the kind of a page of a cfile for kernels that read it, and the address of its cells. The page has passed
    the check of its codec."""
    if page.is_all_null:
        return NULLS, 0
    payload = address_of(page.stored)
    kind = _KINDS[page.codec.name]
    if kind == RUNS and not page.stored[:4].any():  # plain cells, after the number of runs
        return _plain(physical), payload + 4
    return (_plain(physical) if kind == FIXED else kind), payload


def part_of(page: Page, physical: PhysicalType) -> tuple[int, int, int, int]:
    """Return what `kind_of` does for a page of a cfile, its rows, and the address of its bitmap, 0 without one; found
    once."""
    part = page.part
    if part is None:
        part = (*kind_of(page, physical), page.row_count, address_or_0(page.bitmap))
        object.__setattr__(page, "part", part)
    return part


def _plain(physical: PhysicalType) -> int:
    return {PhysicalType.BYTES: STRINGS, PhysicalType.BOOL: BITS}.get(physical, FIXED)


_KINDS: dict[str, int] = {
    "plain": FIXED,
    "bitshuffle": SHUFFLED,
    "run_length": RUNS,
    "dictionary": CODES,
    "frame_of_reference": FRAMES,
    "alp": FRAMES,
    "prefix": PREFIXES,
    "fsst": SYMBOLS,
    "shredded": UNREAD,
}
