"""What a failed disk call means to whoever asked for the work."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ...schemas.errors import StorageFullError, UnavailableError


def is_full(error: OSError) -> bool:
    """Whether a call failed for want of space, which may come back, and not because the disk is broken."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_of_the_file(error: OSError) -> bool:
    """Whether a call failed for the sake of one file, which others need not share: not for want of memory, file
    descriptors or space."""
    return error.errno not in _OF_THE_PROCESS and not is_full(error)


_OF_THE_PROCESS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})


@contextmanager
def named(what: str) -> Iterator[None]:
    """Turn an OSError of the body into a StoreError that says ``what`` could not be done.

    Raises:
        StorageFullError: the disk is full.
        UnavailableError: the disk failed.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise StorageFullError(f"the disk is full: {what}") from error
        raise UnavailableError(f"{what}: the disk failed ({error.strerror or error})") from error
