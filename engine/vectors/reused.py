"""The memory of data that scans read and decoded: kept for the next of them, and given back."""

from .huge_pages import RESULTS
from .lending import READ_BUFFERS


def release_unused() -> None:
    """Return to the operating system what nothing has used for a while."""
    READ_BUFFERS.release_unused()
    RESULTS.release_unused()


def release_all() -> None:
    """Return to the operating system all that nothing uses now."""
    READ_BUFFERS.release()
    RESULTS.release()


def idle_bytes() -> int:
    """Return the bytes that are kept for the next scans."""
    return READ_BUFFERS.idle_bytes + RESULTS.idle_bytes
