"""The page of the log: the last lines that this process wrote."""

from __future__ import annotations

import logging

from ....schemas.errors import InvalidArgumentError
from ...runtime.logs import LogLine
from .frame import Page, page
from .html import Cell, Element, live, table, tag
from .listing import Column, Listing
from .visit import Visit
from .words import clock

PATH = "/console/log"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _message(line: LogLine) -> Cell:
    if not line.traceback:
        return line.message
    return tag("details", tag("summary", line.message), tag("pre", line.traceback))


def _level(line: LogLine) -> Cell:
    name = logging.getLevelName(line.level).lower()
    return tag("span", name, class_="bad") if line.level >= logging.WARNING else name


_COLUMNS: list[Column[LogLine]] = [
    Column("Time", lambda line: clock(line.seconds), lambda line: line.number, True),
    Column("Level", _level, lambda line: (line.level, line.number), True),
    Column("Part", lambda line: line.logger.removeprefix("nyala."), lambda line: (line.logger, -line.number)),
    Column("Message", _message),
]


def log_page(visit: Visit) -> Page:
    """Return the console's page of the last lines of the log, the newest first. Raises PermissionDeniedError: the
    caller is no administrator."""
    visit.check_administers("log")
    least = visit.asked.get("level", "debug")
    if least not in _LEVELS:
        raise InvalidArgumentError(f"`level` must be one of {', '.join(_LEVELS)}")
    listing = Listing(visit, PATH, _COLUMNS, {"level": "" if least == "debug" else least})
    lines = [
        line
        for line in visit.around.log.lines()
        if line.level >= _LEVELS[least] and listing.has(line.message, line.logger, line.traceback)
    ]
    choices = [_choice(listing, each, each == least) for each in ("debug", "warning", "error")]
    return page(
        "Log",
        tag(
            "p", "The last lines that this process has logged since its start; the whole log is on its standard error."
        ),
        listing.form("Part of a message"),
        tag("p", "Show ", *choices),
        live(
            "lines", table(listing.titles(), listing.rows(listing.sorted(lines)), 4, empty="There are no such lines.")
        ),
        at=PATH,
        is_live=True,
    )


def _choice(listing: Listing[LogLine], level: str, is_chosen: bool) -> Element:
    text = {"debug": "all", "warning": "warnings and errors", "error": "errors"}[level]
    content = tag("strong", text) if is_chosen else tag("a", text, href=listing.address(level=level))
    return tag("span", content, " ")
