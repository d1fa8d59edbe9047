"""Runs commands without what the caller's environment and folder would add."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NYALA_CACHE_DIR", "NYALA_KERNELS")
"""Variables that would let a command use something of the checkout, or of an earlier run."""


class CommandError(RuntimeError):
    """A command failed; the message has the command and the end of its output."""


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment without the checkout's settings, and with ``more``."""
    return {name: value for name, value in os.environ.items() if name not in _OURS} | more


def run(*words: str | Path, folder: Path, seconds: float = 1800, **variables: str) -> str:
    """Run a command in a folder and return its standard output.

    Raises:
        CommandError: the command failed.
    """
    command = [str(word) for word in words]
    result = subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, timeout=seconds
    )
    if result.returncode:
        raise CommandError(f"{' '.join(command)}\n{(result.stdout + result.stderr)[-4000:]}")
    return result.stdout
