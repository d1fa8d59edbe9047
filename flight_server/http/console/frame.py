"""The frame of every page: the brand, which server it is and who looks, the pages in groups, and the colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .html import Cell, Element, tag

Scheme = Literal["", "light", "dark"]
"""The colours of the pages; empty: as the browser prefers."""
SCHEMES: dict[Scheme, str] = {"": "Auto", "light": "Light", "dark": "Dark"}
SCHEME_PATH = "/console/scheme"

_DATA = ("Data", (("Tables", "/console"), ("Users and grants", "/console/users")))
_OPERATION = (
    ("Requests", (("Activity", "/console/activity"), ("Scans", "/console/scans"), ("Writes", "/console/writes"))),
    (
        "Store",
        (
            ("Maintenance", "/console/maintenance"),
            ("Memory", "/console/memory"),
            ("Backups and jobs", "/console/jobs"),
        ),
    ),
)
_SERVER = (("Servers", "/console/servers"), ("Metrics", "/metrics"))
_ADMINISTRATION = (("Settings", "/console/settings"), ("Log", "/console/log"))
_MARK = ((1, 2, 4, 12), (6, 5, 4, 9), (11, 3, 4, 11))
"""The columns of the mark: left, top, width, height."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of the console's pages: what those of one visit have in common. By default that of a visitor of whom
    nothing is known: it is told neither the version nor the name of the server."""

    server: str = ""
    version: str = ""
    user: str = ""
    """Who looks, in words."""
    operates: bool = True
    """Whether the visitor may see the pages about all users: others are not led there."""
    administers: bool = True
    """Whether it may see those about the process."""
    scheme: Scheme = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console without its frame."""

    title: str
    content: tuple[Cell, ...]
    at: str = ""
    """The address of its section."""
    is_live: bool = False
    """Whether it has live parts."""

    def write(self, frame: Frame = Frame()) -> bytes:
        """Return the whole page, in HTML."""
        script = [tag("script", src="/console/live.js", defer="")] if self.is_live else []
        scheme = {"data_scheme": frame.scheme} if frame.scheme else {}
        whole = tag(
            "html",
            tag(
                "head",
                tag("meta", charset="utf-8"),
                tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
                tag("title", f"{self.title} - Nyala"),
                tag("link", rel="stylesheet", href="/console/style.css"),
                *script,
            ),
            tag(
                "body",
                tag("a", "Skip to the content", href="#content", class_="skip"),
                _header(frame),
                _navigation(frame, self.at),
                tag("main", tag("h1", self.title), *self.content, id="content"),
            ),
            lang="en",
            **scheme,
        )
        pieces = ["<!doctype html>"]
        whole.write(pieces)
        return "".join(pieces).encode()


def page(title: str, *content: Cell, at: str = "", is_live: bool = False) -> Page:
    """Return a page of the console, in the section ``at``."""
    return Page(title, content, at, is_live)


def _header(frame: Frame) -> Element:
    columns = (tag("rect", x=x, y=y, width=width, height=height, rx=1) for x, y, width, height in _MARK)
    mark = tag("svg", tag("title", "Three columns"), *columns, viewBox="0 0 16 16", role="img", class_="mark")
    known = [tag("span", text, class_=kind) for kind, text in (("server", frame.server), ("user", frame.user)) if text]
    version = [tag("small", frame.version)] if frame.version else []
    brand = tag("a", mark, tag("strong", "Nyala"), *version, href="/console", class_="brand")
    return tag("header", brand, *known, _schemes(frame.scheme))


def _schemes(chosen: Scheme) -> Element:
    choices = (
        tag("strong", text) if scheme == chosen else tag("a", text, href=f"{SCHEME_PATH}?to={scheme}")
        for scheme, text in SCHEMES.items()
    )
    return tag("span", *choices, role="group", aria_label="Colours", class_="schemes")


def _navigation(frame: Frame, at: str) -> Element:
    server = (*(_SERVER if frame.operates else ()), *(_ADMINISTRATION if frame.administers else ()))
    groups = [_DATA, *(_OPERATION if frame.operates else ()), *([("Server", server)] if server else [])]
    return tag(
        "nav",
        *(
            tag("div", tag("span", name), *(_link(text, target, at) for text, target in pages))
            for name, pages in groups
        ),
        aria_label="Pages",
    )


def _link(text: str, target: str, at: str) -> Element:
    current = {"aria_current": "page"} if target == at else {}
    return tag("a", text, href=target, **current)
