"""Codecs and kernels in one process, in cache, beside the C libraries and pyarrow:  python -m bench.micro"""

import os

# One thread against one thread: the bitshuffle library would start its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
