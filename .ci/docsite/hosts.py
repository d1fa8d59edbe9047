"""Sees files that make a browser ask another host: the site must work offline, and tell nobody of its readers."""

from __future__ import annotations

import re
from pathlib import Path

_ADDRESS = r"""["'(]*(?:https?:)?//"""
_LOADED_LINKS = "stylesheet|icon|preload|prefetch|preconnect|dns-prefetch|modulepreload"
_LOADS = re.compile(
    rf"<(?:script|img|iframe|source)\b[^>]*\bsrc={_ADDRESS}"
    rf"""|<link\b(?=[^>]*\brel=["']?(?:{_LOADED_LINKS}))[^>]*\bhref={_ADDRESS}"""
    rf"|@import\s+(?:url)?{_ADDRESS}|\burl{_ADDRESS}"
)


def loads_from_others(text: str) -> bool:
    """Return whether a page or a style sheet loads something from another host. Links that a reader follows do not."""
    return _LOADS.search(text) is not None


def offenders(site: Path) -> list[str]:
    """Return the pages and style sheets of a built site that load something from another host."""
    texts = [file for file in sorted(site.rglob("*")) if file.suffix in (".html", ".css")]
    return [file.relative_to(site).as_posix() for file in texts if loads_from_others(file.read_text())]
