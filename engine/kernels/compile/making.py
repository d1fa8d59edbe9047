"""Makes libraries of kernels, each in a process of its own, since a process compiles for one processor only."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..ahead.levels import LEVELS, Level, usable_levels
from ..ahead.library import INSTALLED, is_wanted, library, library_name
from ..ahead.private import KERNELS_DIRECTORY, cache_base, private_directory, source_digest

Progress = Callable[[int, int, str], None]
"""Called with kernels done, kernels in all, and the name of the next one."""

CACHED = "libraries"
"""The directory in the cache."""


def compile_library(
    directory: Path, level: Level, progress: Progress | None = None, modules: Sequence[str] = ()
) -> Path:
    """Compile all kernels, or those of some modules, to a library for a level, a file in ``directory``, and return it.

    Raises RuntimeError, with the compiler's words, if that fails.
    """
    path = directory / library_name(level, source_digest())
    words = [sys.executable, "-m", "nyala.engine.kernels.compile.build", level.name, str(path), *modules]
    with tempfile.TemporaryDirectory(prefix="nyala-kernels-") as cache, tempfile.TemporaryFile("w+") as errors:
        environment = {
            **os.environ,
            "NYALA_CACHE_DIR": cache,  # nothing is put there
            "NUMBA_CPU_NAME": level.processor,
            "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in level.features),
        }
        environment.pop("NUMBA_DISABLE_JIT", None)
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if progress:
                    progress(*json.loads(line))
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"the kernels cannot be compiled ahead of time: {errors.read()[-2000:]}")
    return path


def ensure_library(progress: Progress | None = None) -> None:
    """Compile the best library of kernels for this machine into the cache if there is none, unless kernels are to be
    compiled on use.

    To be called before the first kernel is imported. If the library cannot be made, kernels are compiled on first use.
    """
    levels = usable_levels()
    if library() or not levels or not is_wanted():
        return
    directory = private_directory(CACHED)
    if directory.parent != cache_base():
        return  # it would be gone with this process
    try:
        with (directory / "making").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # of several processes that start at once, one makes it for all
            library.cache_clear()
            if not library():
                compile_library(directory, levels[0], progress)
    except (OSError, RuntimeError) as error:
        logging.getLogger("nyala.engine").warning("%s", error)
    library.cache_clear()


def main() -> None:
    """Compile the libraries of kernels of all levels into the sources, for a wheel to carry."""
    INSTALLED.mkdir(exist_ok=True)
    for old in INSTALLED.glob("*.kernels"):
        old.unlink()
    for level in LEVELS:
        path = compile_library(INSTALLED, level)
        sys.stdout.write(f"{path.relative_to(KERNELS_DIRECTORY)}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
