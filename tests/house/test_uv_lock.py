"""``uv.lock``: what developers install, as exact versions with hashes of the public index; ``make lock`` writes it."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEXT = (ROOT / "uv.lock").read_text()
LOCK = tomllib.loads(TEXT)
(OURS,) = (package for package in LOCK["package"] if package["name"] == "nyala")
GROUPS = PROJECT["dependency-groups"]
Wish = tuple[str, frozenset[str], SpecifierSet]
"""A package that is asked for: its name, its extras, and the versions that will do."""


def written(requirement: str) -> Wish:
    parsed = Requirement(requirement)
    return canonicalize_name(parsed.name), frozenset(parsed.extras), parsed.specifier


def recorded(entry: dict[str, Any]) -> Wish:
    return entry["name"], frozenset(entry.get("extras", ())), SpecifierSet(entry.get("specifier", ""))


def members(group: str) -> set[Wish]:
    """All that a group asks for, with the groups that it includes."""
    wishes: set[Wish] = set()
    for entry in GROUPS[group]:
        wishes |= members(entry["include-group"]) if isinstance(entry, dict) else {written(entry)}
    return wishes


def test_the_lock_is_of_this_project_file() -> None:
    wishes = {written(each) for each in PROJECT["project"]["dependencies"]}
    for requirements in PROJECT["project"]["optional-dependencies"].values():
        wishes |= {written(each) for each in requirements}
    assert {recorded(each) for each in OURS["metadata"]["requires-dist"]} == wishes, "make lock"
    assert OURS["version"] == PROJECT["project"]["version"], "make lock"
    assert LOCK["requires-python"] == PROJECT["project"]["requires-python"], "make lock"


@pytest.mark.parametrize("group", GROUPS)
def test_the_lock_has_this_group(group: str) -> None:
    entries = OURS["metadata"]["requires-dev"][group]
    assert {recorded(each) for each in entries} == members(group), "make lock"
    versions = {package["name"]: Version(package["version"]) for package in LOCK["package"]}
    assert [name for name, _, allowed in members(group) if versions[name] not in allowed and name != "nyala"] == []


def test_every_file_is_on_the_public_index_and_has_a_hash() -> None:
    hosts = set(re.findall(r'"(\w+://[^/"]+)', TEXT))
    assert hosts == {"https://pypi.org", "https://files.pythonhosted.org"}
    for package in LOCK["package"]:
        if package is not OURS:
            files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
            assert files and all(re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]) for file in files), package["name"]
