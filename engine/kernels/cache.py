"""Where compiled kernels are kept between processes."""

import hashlib
import os
import tempfile
from pathlib import Path

import llvmlite
import numba


def source_digest() -> str:
    """Return a digest of all kernel sources and of the compiler, so that an edited helper is never served stale."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    engine = Path(__file__).parent.parent
    for source in sorted([*engine.glob("kernels/*.py"), *engine.glob("*/kernels/*.py")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def configure() -> None:
    """Point numba's cache at a directory that is ours; called before the first kernel is decorated."""
    base = os.environ.get("NYALA_CACHE_DIR") or str(Path.home() / ".cache" / "nyala")
    directory = Path(base) / f"kernels-{source_digest()}"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        directory = Path(tempfile.mkdtemp(prefix="nyala-kernels-"))
    numba.config.CACHE_DIR = str(directory)  # pyright: ignore[reportAttributeAccessIssue]
