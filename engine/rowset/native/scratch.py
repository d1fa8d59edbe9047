"""RowScratch: the memory that kernels which read single rows need beside the pages."""

import numpy as np

from ...kernels.reads import point_read as kernels
from ...vectors.memory.memory import address_of, allocate

_LEAST_BYTES = 4096


class RowScratch:
    """Room for a mini-block, and for strings that kernels restore; cells refer to these by address. Not thread safe."""

    def __init__(self) -> None:
        self._memory = allocate(kernels.SCRATCH_BYTES, np.uint8)
        self._memory[: kernels.SCRATCH_FIELDS_BYTES] = 0
        self.address = address_of(self._memory)
        self.texts = np.empty(0, np.uint8)
        """The memory for strings."""

    def grow(self) -> None:
        """Replace the memory for strings by twice as much, which is free, after a kernel said FULL."""
        size = max(2 * len(self.texts), _LEAST_BYTES)
        self.texts = allocate(size + kernels.TEXTS_SLACK_BYTES, np.uint8)[:size]
        start = address_of(self.texts)
        fields = self._memory[: kernels.SCRATCH_FIELDS_BYTES].view(np.int64)
        fields[kernels.FREE], fields[kernels.FREE_END] = start, start + size
