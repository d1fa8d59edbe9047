"""What a failed disk call means."""

import errno


def is_full(error: OSError) -> bool:
    """Whether a call failed for want of space, which may come back, and not because the disk is broken."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
