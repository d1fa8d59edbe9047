"""HTML and SVG as trees. All text and all attributes are escaped when they are written: no page can forget it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, NamedTuple

_VOID = frozenset({"meta", "link", "input"})


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a page of HTML with what is in it."""

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
    """Return an element of HTML. ``_`` in the names of attributes stands for ``-``, and at their end for nothing."""
    given = ((key.rstrip("_").replace("_", "-"), str(value)) for key, value in attributes.items())
    return Element(name, tuple(given), children)


Cell = Element | str


class Title(NamedTuple):
    """The title of a column in a table of HTML with more than its text."""

    text: str
    target: str = ""
    """The address of the page in another order."""
    order: Literal["", "ascending", "descending"] = ""
    """That of the page, if it is by this column."""
    note: str = ""
    """What follows the text, less loud."""


def table(
    titles: Sequence[str | Title],
    rows: Iterable[Sequence[Cell]],
    numbers_from: int = 1,
    about: str = "",
    empty: str = "None.",
    totals: Sequence[Cell] = (),
) -> Element:
    """Return a table of HTML for a page of the console; the columns from ``numbers_from`` on are numbers. ``about`` is
    its caption, ``totals`` its last row. Without rows it is the text ``empty``. Each cell names its column, for screens
    that are too narrow for a row."""
    columns = [each if isinstance(each, Title) else Title(each) for each in titles]
    kinds = [{} if place < numbers_from else {"class_": "number"} for place in range(len(columns))]

    def line(cells: Sequence[Cell]) -> Element:
        named = zip(cells, columns, kinds, strict=True)
        return tag("tr", *(tag("td", cell, data_title=column.text, **kind) for cell, column, kind in named))

    body = [line(row) for row in rows]
    if not body:
        return tag("p", empty)
    caption = [tag("caption", about)] if about else []
    head = tag("tr", *(_title(column, kind) for column, kind in zip(columns, kinds, strict=True)))
    foot = [tag("tfoot", line(totals))] if totals else []
    return tag("div", tag("table", *caption, tag("thead", head), tag("tbody", *body), *foot), class_="wide")


def _title(column: Title, kind: dict[str, str]) -> Element:
    order = {"aria_sort": column.order} if column.order else {}
    text = tag("a", column.text, href=column.target) if column.target else column.text
    note = [" ", tag("small", column.note)] if column.note else []
    return tag("th", text, *note, scope="col", **kind, **order)


def legend(**kinds: str) -> Element:
    """Return the legend of a drawing in the console: what its colours mean, by their classes in the style."""
    return tag("p", *(tag("span", text, class_=f"key {kind}") for kind, text in kinds.items()), class_="legend")


def tiles(*facts: tuple[str, Cell]) -> Element:
    """Return the tiles of a page of the console: a few numbers that matter most, each with its name."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="tiles")


def live(name: str, *content: Cell) -> Element:
    """Return a part of a page of the console that the script keeps up to date."""
    return tag("div", *content, id=name, data_live="")
