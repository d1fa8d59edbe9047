"""The file that a process locks while it has a store open."""

from pathlib import Path

from .local import LocalFileSystem

STORE_LOCK = "lock"


def check_free(directory: str | Path) -> None:
    """Check, before long preparations, whether another process has the store in ``directory`` open.

    Raises:
        UnavailableError: one has; the text says what to do.
    """
    if (Path(directory) / STORE_LOCK).exists():
        LocalFileSystem(directory).lock(STORE_LOCK).close()
