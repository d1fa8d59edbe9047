"""Versions of Nyala out of the history of this repository, each importable beside the checkout.

No release but 0.1.0 has been made, so the others are commits: the newest ones before a format or the wire grew.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[3]
_PARTS = "schemas", "engine", "flight_server", "clients", "java"


@dataclass(frozen=True)
class Build:
    """One version: ``commit`` is empty for the checkout itself."""

    name: str
    commit: str
    has_buckets: bool = True

    def is_there(self) -> bool:
        """Whether the history is complete enough to build it."""
        answer = subprocess.run(["git", "cat-file", "-e", f"{self.commit}^{{commit}}"], cwd=ROOT, capture_output=True)
        return answer.returncode == 0


TODAY = Build("today", "")
BUILDS = (
    Build("0.1.0", "c4cb691c", has_buckets=False),
    Build("grants", "fc9f8564", has_buckets=False),
    Build("standby", "4872638d"),
    Build("authors", "3489da7c"),
    Build("sql", "a59567e0"),
    Build("row-column", "3584570b"),
    Build("nested", "5d189d9d"),
    Build("computed", "ee1a16bb"),
    Build("read-only", "98851a8d"),
)
"""From the oldest one on."""


class Install:
    """A build that programs can import."""

    def __init__(self, build: Build, work: Path) -> None:
        """Take its sources out of the history, into ``work``, in the shape of an installed package."""
        self.build = build
        self._site = work / f"site-{build.name}"
        if not build.commit or self._site.exists():
            return
        sources = work / f"sources-{build.name}"
        archive = subprocess.run(["git", "archive", build.commit], cwd=ROOT, check=True, capture_output=True)
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as content:
            content.extractall(sources, filter="data")
        package = self._site / "nyala"
        package.mkdir(parents=True)
        for each in [*(sources / "nyala").iterdir(), *(sources / part for part in _PARTS)]:
            (package / each.name).symlink_to(each)

    @property
    def environment(self) -> Mapping[str, str]:
        """What its processes have in their environment."""
        return os.environ | ({"PYTHONPATH": str(self._site)} if self.build.commit else {})

    def start(self, *words: str, output: IO[str] | None = None) -> subprocess.Popen[str]:
        """Start Python with these words; its output goes into a file, or can be read."""
        return subprocess.Popen(
            [sys.executable, "-P", *words],
            env=self.environment,
            cwd=self._site.parent,
            stdout=output or subprocess.PIPE,
            stderr=output or subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, seconds: float = 240) -> str:
        """Run Python with these words; return its output. Raises Failed."""
        process = self.start(*words)
        try:
            output, errors = process.communicate(timeout=seconds)
        finally:
            process.kill()
        if process.returncode:
            raise Failed(f"{self.build.name}: {' '.join(words)}", errors)
        return output


class Failed(Exception):
    """A program ended with an error."""

    def __init__(self, words: str, errors: str) -> None:
        super().__init__(f"{words}\n{errors}")
        self.errors = errors
