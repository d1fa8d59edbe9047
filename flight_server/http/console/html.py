"""HTML and SVG as trees. All text and all attributes are escaped when they are written: no page can forget it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_VOID = frozenset({"meta", "link", "input"})
_PAGES = (
    ("Tables", "/console"),
    ("Activity", "/console/activity"),
    ("Scans", "/console/scans"),
    ("Writes", "/console/writes"),
    ("Maintenance", "/console/maintenance"),
    ("Memory", "/console/memory"),
    ("Metrics", "/metrics"),
)


@dataclass(frozen=True, slots=True)
class Element:
    """One element with what is in it."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Element | str, ...]

    def write(self, into: list[str]) -> None:
        """Append its text to a list."""
        attributes = "".join(f' {name}="{escape(value)}"' for name, value in self.attributes)
        into.append(f"<{self.name}{attributes}>")
        if self.name in _VOID:
            return
        for child in self.children:
            if isinstance(child, Element):
                child.write(into)
            else:
                into.append(escape(child))
        into.append(f"</{self.name}>")


def tag(name: str, /, *children: Element | str, **attributes: object) -> Element:
    """Return an element. ``_`` in the names of attributes stands for ``-``, and at their end for nothing."""
    given = ((key.rstrip("_").replace("_", "-"), str(value)) for key, value in attributes.items())
    return Element(name, tuple(given), children)


Cell = Element | str


def table(
    titles: Sequence[str], rows: Iterable[Sequence[Cell]], numbers_from: int = 1, about: str = "", empty: str = "None."
) -> Element:
    """Return a table; the columns from ``numbers_from`` on are numbers. ``about`` is its caption. Without rows it is
    the text ``empty``."""

    def line(kind: str, cells: Sequence[Cell], **more: str) -> Element:
        classes = ({} if place < numbers_from else {"class_": "number"} for place in range(len(cells)))
        return tag("tr", *(tag(kind, cell, **more, **of) for cell, of in zip(cells, classes, strict=True)))

    body = [line("td", row) for row in rows]
    if not body:
        return tag("p", empty)
    caption = [tag("caption", about)] if about else []
    return tag(
        "div",
        tag("table", *caption, tag("thead", line("th", titles, scope="col")), tag("tbody", *body)),
        class_="wide",
    )


def live(name: str, *content: Cell) -> Element:
    """Return a part of a page that the script keeps up to date."""
    return tag("div", *content, id=name, data_live="")


def page(title: str, *content: Cell, at: str = "", is_live: bool = False) -> bytes:
    """Return a whole page, of the section ``at``; ``is_live``: it has live parts."""
    script = [tag("script", src="/console/live.js", defer="")] if is_live else []
    whole = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width"),
            tag("title", f"{title} - Nyala"),
            tag("link", rel="stylesheet", href="/console/style.css"),
            *script,
        ),
        tag(
            "body",
            tag("a", "Skip to the content", href="#content", class_="skip"),
            tag("nav", *(_link(text, target, at) for text, target in _PAGES), aria_label="Pages"),
            tag("main", tag("h1", title), *content, id="content"),
        ),
        lang="en",
    )
    pieces = ["<!doctype html>"]
    whole.write(pieces)
    return "".join(pieces).encode()


def _link(text: str, target: str, at: str) -> Element:
    current = {"aria_current": "page"} if target == at else {}
    return tag("a", text, href=target, **current)
