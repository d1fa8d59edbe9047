"""Listings: tables that are sorted and searched by what the address says, so without a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from ....schemas.errors import InvalidArgumentError
from .html import Cell, Element, Title, tag
from .visit import Visit

Item = TypeVar("Item")
_SEARCH_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column of a listing on a page of the console."""

    title: str
    shown: Callable[[Item], Cell]
    key: Callable[[Item], Any] | None = None
    """Sorts the items; None: the column cannot be sorted by."""
    is_down: bool = False
    """Whether the greatest comes first when the column is chosen, as for most numbers."""

    @property
    def name(self) -> str:
        """What the address calls it."""
        return self.title.lower().replace(" ", "-")


class Listing(Generic[Item]):
    """A listing on a page of the console, as one visit asks for it. The address has ``sort``, a column, ``order``, and
    ``q``, a text to search."""

    def __init__(
        self, visit: Visit, path: str, columns: Sequence[Column[Item]], more: Mapping[str, str] | None = None
    ) -> None:
        """The first column sorts, if nothing else is asked for. ``more`` are other parameters of the page. Raises
        InvalidArgumentError: the visit asks for what there is not."""
        self.columns = columns
        self.search = visit.asked.get("q", "").strip()[:_SEARCH_LENGTH_MAX]
        self._path = path
        self._more = dict(more or {})
        sortable = {column.name: column for column in columns if column.key}
        chosen = sortable.get(visit.asked.get("sort", columns[0].name))
        order = visit.asked.get("order", "")
        if chosen is None or order not in ("", "up", "down"):
            raise InvalidArgumentError(f"`sort` must be one of {', '.join(sortable)}, and `order` must be up or down")
        self.column = chosen
        self._key = chosen.key
        self.is_down = chosen.is_down if not order else order == "down"

    @property
    def is_first(self) -> bool:
        """Whether the first column sorts."""
        return self.column is self.columns[0]

    def has(self, *texts: str) -> bool:
        """Whether one of the texts has what is searched."""
        wanted = self.search.casefold()
        return any(wanted in text.casefold() for text in texts)

    def sorted(self, items: Iterable[Item]) -> list[Item]:
        """Return items in the order that is asked for."""
        return sorted(items, key=self._key or str, reverse=self.is_down)

    def titles(self) -> list[Title]:
        """Return the titles with links to the other orders."""
        return [self._title(column) for column in self.columns]

    def rows(self, items: Iterable[Item]) -> list[list[Cell]]:
        """Return the cells of items."""
        return [[column.shown(item) for column in self.columns] for item in items]

    def address(self, **more: object) -> str:
        """Return the address of the same listing with other parameters."""
        order = "down" if self.is_down else "up"
        asked = {"q": self.search, "sort": "" if self.is_first else self.column.name}
        asked["order"] = "" if self.is_down == self.column.is_down else order
        given = {name: value for name, value in ({**self._more, **asked, **more}).items() if value != ""}
        return f"{self._path}?{urlencode(given)}" if given else self._path

    def form(self, about: str) -> Element:
        """Return the form that searches, and that sorts on screens too narrow for titles."""
        columns = {column.name: column.title for column in self.columns if column.key}
        orders = {"up": "ascending", "down": "descending"}
        return tag(
            "form",
            tag("input", type="search", name="q", value=self.search, placeholder=about, aria_label=about),
            *(tag("input", type="hidden", name=name, value=value) for name, value in self._more.items() if value),
            tag(
                "span",
                _choice("sort", "Sort by", columns, self.column.name),
                _choice("order", "Order", orders, "down" if self.is_down else "up"),
                class_="narrow",
            ),
            tag("button", "Search", type="submit"),
            *([tag("a", "Show all", href=self.address(q=""))] if self.search else []),
            method="get",
            action=self._path,
            class_="search",
        )

    def _title(self, column: Column[Item]) -> Title:
        if column.key is None:
            return Title(column.title)
        is_chosen = column is self.column
        is_down = not self.is_down if is_chosen else column.is_down
        target = self.address(sort=column.name, order="down" if is_down else "up")
        return Title(column.title, target, ("descending" if self.is_down else "ascending") if is_chosen else "")


def _choice(name: str, about: str, choices: Mapping[str, str], chosen: str) -> Element:
    options = (
        tag("option", text, value=value, **({"selected": ""} if value == chosen else {}))
        for value, text in choices.items()
    )
    return tag("select", *options, name=name, aria_label=about)
