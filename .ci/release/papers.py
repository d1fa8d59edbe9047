"""What lies beside the files of a release: their checksums, and the bill of what they need."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from .shell import run

SUMS = "SHA256SUMS"


def sha256(file: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_sums(folder: Path) -> Path:
    """Write the checksums of all files of a folder, as ``sha256sum --check`` reads them."""
    files = sorted(file for file in folder.iterdir() if file.name != SUMS)
    sums = folder / SUMS
    sums.write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))
    return sums


def check(file: Path) -> None:
    """Compare a file with its line in the checksums beside it.

    Raises:
        ValueError: it has none, or another.
    """
    lines = dict(reversed(line.split("  ", 1)) for line in (file.parent / SUMS).read_text().splitlines())
    if lines.get(file.name) != sha256(file):
        raise ValueError(f"{file.name} is not the file that {SUMS} names")


def write_bill(python: Path, sources: Path, out: Path) -> Path:
    """Write the bill of materials (CycloneDX) of an environment in which Nyala is installed with every extra."""
    words = ("-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON", "--pyproject")
    run(sys.executable, *words, sources / "pyproject.toml", "--output-file", out, python, folder=sources)
    return out


def components(bill: Path) -> dict[str, str]:
    """Return the packages that a bill lists: name -> version."""
    return {each["name"]: each["version"] for each in json.loads(bill.read_text())["components"]}
