"""Memory that is kept when it was used, for what comes next, and given back."""

from .huge_pages import RESULTS
from .lending import READ_BUFFERS
from .reserved import COLUMNS, TABLES

_KEPT = READ_BUFFERS, RESULTS, COLUMNS, TABLES


def keep(*, results: int, columns: int, tables: int) -> None:
    """Set the most bytes of memory that are kept for the next vectors, of each kind."""
    RESULTS.idle_bytes_max, COLUMNS.idle_bytes_max, TABLES.idle_bytes_max = results, columns, tables


def release_unused() -> None:
    """Return to the operating system the memory kept for vectors that none has used for a while."""
    for kept in _KEPT:
        kept.release_unused()


def release_all() -> None:
    """Return to the operating system all memory kept for vectors that none uses now."""
    for kept in _KEPT:
        kept.release()


def idle_bytes() -> int:
    """Return the bytes of memory that are kept for the next vectors."""
    return sum(kept.idle_bytes for kept in _KEPT)
