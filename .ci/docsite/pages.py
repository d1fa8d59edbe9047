"""The pages of the site, and where each lies in the repository."""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = "docs"
API = "api/index.html"
"""The API reference, which pdoc builds from the docstrings."""
MOVED = {
    "README.md": "index.md",
    "docs/README.md": "by-task.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-reports.md",
    "bench/README.md": "benchmarks.md",
    "integrations/README.md": "integrations/index.md",
    "integrations/dbt/README.md": "integrations/dbt.md",
    "integrations/dlt/README.md": "integrations/dlt.md",
    "java/README.md": "java.md",
}
"""Pages of the site that have another place in the repository: the place there -> the place in the site."""
PICTURES = "bench/results"
"""A folder of pictures that a moved page shows; it has the same place in the site."""

_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_URL = re.compile(r"[a-z]+:|#|//")


class BrokenLinkError(ValueError):
    """A link names no file of the repository."""


@cache
def pages() -> dict[str, str]:
    """Return the place of each page in the site -> its file in the repository."""
    files = {place: origin for origin, place in MOVED.items()}
    for file in sorted((ROOT / DOCS).rglob("*.md")):
        origin = file.relative_to(ROOT).as_posix()
        if origin not in MOVED:
            files[origin.removeprefix(f"{DOCS}/")] = origin
    return files


@cache
def urls() -> dict[str, str]:
    """Return the project's URLs by their names, from ``pyproject.toml``: the one place that has them."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]


def navigation(items: list[Any], section: str = "") -> Iterator[tuple[str, str]]:
    """Yield the top section and the place of each page of the ``nav`` of ``mkdocs.yml``, in order."""
    for item in items:
        title, below = next(iter(item.items())) if isinstance(item, dict) else ("", item)
        if isinstance(below, list):
            yield from navigation(below, section or title)
        elif not _URL.match(below):
            yield section, below


def markdown(place: str, origin: str) -> str:
    """Return the text of a page with links that work in the site: to pages of it, or to the repository's URL."""
    parts = _CODE.split((ROOT / origin).read_text())
    parts[::2] = [_LINK.sub(lambda link: f"]({_target(link[1], place, origin)})", part) for part in parts[::2]]
    return "".join(parts)


def _target(target: str, place: str, origin: str) -> str:
    if _URL.match(target):
        return target
    path, _, fragment = target.partition("#")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    if not (ROOT / file).exists():
        raise BrokenLinkError(f"{origin} links to {target}, which does not exist")
    end = f"#{fragment}" if fragment else ""
    inside = _place(file)
    if inside is None:
        kind = "tree" if (ROOT / file).is_dir() else "blob"
        return f"{urls()['Source']}/{kind}/main/{file}{end}"
    return posixpath.relpath(inside, posixpath.dirname(place) or ".") + end


def absolute(text: str, reference: str) -> str:
    """Return the text of a file at the top of the repository with links to its files at a tag or branch: for an index
    of packages, where relative links lead nowhere."""
    source = urls()["Source"]

    def target(link: re.Match[str]) -> str:
        return link[0] if _URL.match(link[1]) else f"]({source}/blob/{reference}/{link[1]})"

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(target, part) for part in parts[::2]]
    return "".join(parts)


def _place(file: str) -> str | None:
    """Return where a file of the repository lies in the site; None if it is not there."""
    if file in MOVED:
        return MOVED[file]
    if file.startswith(f"{DOCS}/") and (ROOT / file).is_file():
        return file.removeprefix(f"{DOCS}/")
    if file.startswith(f"{PICTURES}/") and file.endswith(".png"):
        return file
    return None


def slug(heading: str, separator: str) -> str:
    """Return the anchor of a heading, as the repository's host makes it, so that one link works in both places."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)
