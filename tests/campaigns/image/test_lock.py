"""What the image installs: every package that pyproject.toml asks for, and what those need, each in one version with
hashes; and no index is named."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.campaigns.image.dockerfile import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = re.findall(r"--extra (\w+)", (ROOT / "deploy" / "lock.sh").read_text())
LOCKS = {
    "requirements.txt": [
        *PROJECT["project"]["dependencies"],
        *(each for extra in EXTRAS for each in PROJECT["project"]["optional-dependencies"][extra]),
    ],
    "requirements-build.txt": PROJECT["build-system"]["requires"],
}
"""What each file must satisfy."""


def entries(name: str) -> dict[NormalizedName, str]:
    """The entries of a lock by package: all that follows the name."""
    lines = (ROOT / "deploy" / name).read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", "")
    found = [line.partition("==") for line in text.splitlines() if line.strip()]
    assert all(separator for _, separator, _ in found), "an entry without an exact version, or an option"
    return {canonicalize_name(package): rest for package, _, rest in found}


def version(rest: str) -> Version:
    return Version(rest.split()[0])


@pytest.mark.parametrize("name", LOCKS)
def test_every_entry_is_one_version_with_hashes_only(name: str) -> None:
    for package, rest in entries(name).items():
        assert re.fullmatch(r"[\w.]+(\s+--hash=sha256:[0-9a-f]{64})+\s*", rest), f"{package}=={rest}"
    assert "://" not in (ROOT / "deploy" / name).read_text()


@pytest.mark.parametrize("name", LOCKS)
def test_what_the_project_asks_for_is_locked(name: str) -> None:
    assert EXTRAS == ["server", "auth", "http", "encryption", "bucket", "otel"]
    locked = entries(name)
    for asked in map(Requirement, LOCKS[name]):
        package = canonicalize_name(asked.name)
        assert package in locked, f"{package} is not locked: make lock"
        assert version(locked[package]) in asked.specifier, f"{package} is locked at another version: make lock"


def needed(package: str, extras: set[str]) -> set[NormalizedName]:
    """What an installed package needs itself, on this Python."""
    listed = map(Requirement, importlib.metadata.requires(package) or [])
    kinds = ["", *extras]
    found = [each for each in listed if not each.marker or any(each.marker.evaluate({"extra": e}) for e in kinds)]
    return {canonicalize_name(each.name) for each in found}


def test_what_those_need_is_locked_too() -> None:
    """As the packages say themselves where they are installed in the version of the lock; others may need others."""
    locked = entries("requirements.txt")
    extras = {canonicalize_name(asked.name): asked.extras for asked in map(Requirement, LOCKS["requirements.txt"])}
    for package in locked:
        if Version(importlib.metadata.version(package)) == version(locked[package]):
            missing = needed(package, extras.get(package, set())) - locked.keys()
            assert not missing, f"{package} needs {missing}: make lock"
