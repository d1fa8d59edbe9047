"""``llms.txt`` (llmstxt.org): the site for language models, a line for each page, with links to its Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .pages import API, ROOT, markdown, navigation, pages

OPTIONAL = ("Understand", "Formats", "Decisions", "Project")
"""Sections of the navigation that a short context may leave out."""

_NO_PROSE = re.compile(r"^(```.*?^```$|<!--.*?-->)", re.MULTILINE | re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[^.\s]{2}[.?])\s")
_DECISION = re.compile(r"^(?:\*\*Decision\.\*\* |## Decision\n)", re.MULTILINE)
"""A record of a decision is described by this part."""
_SHORTEST = 60
"""The characters of a description: further sentences fill it up."""


def index(nav: list[Any]) -> str:
    """Return ``llms.txt`` for the ``nav`` of ``mkdocs.yml``: the project's title and summary, and each page."""
    sections: dict[str, list[str]] = {}
    for section, place in navigation(nav):
        sections.setdefault("Optional" if section in OPTIONAL else section, []).append(_line(place))
    readme = (ROOT / "README.md").read_text()
    lines = [f"# {title(readme)}", "", f"> {_paragraph(readme)}"]
    for section, entries in sections.items():
        lines += ["", f"## {section}", "", *entries]
    return "\n".join(lines) + "\n"


def full(nav: list[Any]) -> str:
    """Return ``llms-full.txt``: the Markdown of all pages, one after the other."""
    files = pages()
    places = [place for _, place in navigation(nav) if place in files]
    return "\n\n".join(f"<!-- {place} -->\n\n{markdown(place, files[place]).strip()}" for place in places) + "\n"


def write(nav: list[Any], folder: Path) -> None:
    """Write both files, and the Markdown of each page, into the folder of the built site."""
    for place, origin in pages().items():
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(markdown(place, origin))
    (folder / "llms.txt").write_text(index(nav))
    (folder / "llms-full.txt").write_text(full(nav))


def title(text: str) -> str:
    """Return the title of a page."""
    return _plain(text.split("\n", 1)[0].removeprefix("# "))


def description(text: str) -> str:
    """Return the first sentence of a page, or the first few short ones, in one line without the last full stop."""
    words = ""
    for sentence in _SENTENCE_END.split(_paragraph(text)):
        words = f"{words} {sentence}".strip()
        if len(words) >= _SHORTEST:
            break
    return words.rstrip(".:")


def _line(place: str) -> str:
    if place == API:
        return f"- [API reference]({API}): every public class and function of Python, with its parameters and errors"
    text = (ROOT / pages()[place]).read_text()
    return f"- [{title(text)}]({place}): {description(text)}"


def _paragraph(text: str) -> str:
    """Return the first paragraph of prose, or the first of the decision, in one line."""
    decision = _DECISION.search(text)
    blocks = _NO_PROSE.sub("", text[decision.end() :] if decision else text.partition("\n")[2]).split("\n\n")
    return _plain(next(block for block in blocks if block.strip() and block.strip()[0] not in "#|!<"))


def _plain(text: str) -> str:
    """Return Markdown without links and emphasis, in one line."""
    unlinked = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    return " ".join(unlinked.replace("**", "").split())
