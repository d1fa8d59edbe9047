"""HTML and SVG as trees. All text and all attributes are escaped when they are written: no page can forget it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_VOID = frozenset({"meta", "link"})


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


def table(titles: Sequence[str], rows: Iterable[Sequence[Element | str]], numbers_from: int = 1) -> Element:
    """Return a table; the columns from ``numbers_from`` on are numbers."""

    def line(kind: str, cells: Sequence[Element | str]) -> Element:
        classes = ({} if place < numbers_from else {"class_": "number"} for place in range(len(cells)))
        return tag("tr", *(tag(kind, cell, **more) for cell, more in zip(cells, classes, strict=True)))

    body = [line("td", row) for row in rows]
    return tag("table", tag("thead", line("th", titles)), tag("tbody", *body))


def page(title: str, *content: Element | str) -> bytes:
    """Return a whole page."""
    links = (("Tables", "/console"), ("Activity", "/console/activity"), ("Metrics", "/metrics"))
    whole = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width"),
            tag("title", f"{title} - Nyala"),
            tag("link", rel="stylesheet", href="/console/style.css"),
        ),
        tag(
            "body",
            tag("nav", *(tag("a", text, href=target) for text, target in links)),
            tag("main", tag("h1", title), *content),
        ),
        lang="en",
    )
    pieces = ["<!doctype html>"]
    whole.write(pieces)
    return "".join(pieces).encode()


STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --back: #ffffff; --line: #d0d7de; --base: #3b6ea5; --redo: #d08a2e;
  --undo: #8b949e; --link: #0b57b0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --back: #0f1419; --line: #353c45; --base: #6aa3dc;
  --redo: #e3a857; --undo: #7d8590; --link: #79b8ff; } }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); }
nav { padding: .7rem 1.5rem; border-bottom: 1px solid var(--line); display: flex; gap: 1.5rem; }
main { padding: .5rem 1.5rem 3rem; max-width: 75rem; }
a { color: var(--link); } a:focus-visible { outline: 3px solid var(--base); outline-offset: 2px; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; }
svg { display: block; width: 100%; max-width: 60rem; border: 1px solid var(--line); }
.base { fill: var(--base); } .redo { fill: var(--redo); } .undo { fill: var(--undo); }
svg text { fill: var(--ink); font-size: 11px; }
"""
