"""One graph: lines over time with axes, a legend, and a sentence that sums the lines up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from ....schemas.phrases import size
from .html import Element, tag
from .words import clock_time, duration

_WIDTH, _HEIGHT = 360, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 6, 6, 18
"""The room around the lines, for what the axes say."""
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_STEPS = (1.0, 2.0, 5.0, 10.0)
_CLASSES = ("first", "second")


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


class Unit(Enum):
    """The unit of the numbers in a graph of the console. The value is what the script knows it by."""

    COUNT = "count"
    SECONDS = "seconds"
    BYTES = "bytes"

    def shown(self, value: float) -> str:
        """Return a number for people."""
        return _SHOWN[self](value)

    def end(self, greatest: float) -> float:
        """Return where an axis ends: a round number that is no less than the greatest value, and not 0."""
        if greatest <= 0:
            return 1.0
        whole = 1024 ** math.floor(math.log(max(greatest, 1), 1024)) if self is Unit.BYTES else 1
        decimal = whole * 10.0 ** math.floor(math.log10(greatest / whole))
        return next((step * decimal for step in _STEPS if step * decimal >= greatest), 10 * decimal)


_SHOWN: dict[Unit, Callable[[float], str]] = {Unit.COUNT: _count, Unit.SECONDS: duration, Unit.BYTES: size}


@dataclass(frozen=True, slots=True)
class Line:
    """A line in a graph of the console; its values are evenly spread over the time."""

    name: str
    values: Sequence[float]


def graph(title: str, unit: Unit, since: float, until: float, *lines: Line) -> Element:
    """Return a graph for a page of the console: one or two lines between two moments, in seconds since 1970."""
    top = unit.end(max(max(line.values) for line in lines))
    told = [
        f"{line.name or 'Now'} {unit.shown(line.values[-1])}, on average "
        f"{unit.shown(sum(line.values) / len(line.values))}, at most {unit.shown(max(line.values))}"
        for line in lines
    ]
    return tag(
        "figure",
        tag("figcaption", tag("span", title), *_legend(lines, unit)),
        tag(
            "svg",
            tag("title", f"{title}: {'; '.join(told)}"),
            *_axes(unit, top, since, until),
            *(_drawn(line, top, kind) for line, kind in zip(lines, _CLASSES, strict=False)),
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            class_="graph",
            data_unit=unit.value,
            data_top=f"{top:g}",
            data_since=f"{since:.1f}",
            data_until=f"{until:.1f}",
            data_plot=f"{_LEFT} {_TOP} {_PLOT_WIDTH} {_PLOT_HEIGHT}",
        ),
        *(tag("small", each) for each in told),
        tag("output", aria_live="off"),
    )


def _legend(lines: Sequence[Line], unit: Unit) -> Iterator[Element]:
    """Yield each line's name and newest value."""
    for line, kind in zip(lines, _CLASSES, strict=False):
        name = [tag("span", line.name, class_=f"key {kind}"), " "] if line.name else []
        yield tag("span", *name, tag("strong", unit.shown(line.values[-1])))


def _axes(unit: Unit, top: float, since: float, until: float) -> Iterator[Element]:
    for share in (0.0, 0.5, 1.0):
        y = _TOP + _PLOT_HEIGHT * (1 - share)
        yield tag("line", x1=_LEFT, y1=f"{y:g}", x2=_WIDTH - _RIGHT, y2=f"{y:g}", class_="floor")
        yield tag("text", unit.shown(share * top), x=_LEFT - 4, y=f"{y + 3:g}", text_anchor="end")
    middle = (since + until) / 2
    for moment, x, anchor in ((since, _LEFT, "start"), (middle, _LEFT + _PLOT_WIDTH / 2, "middle")):
        yield tag("text", clock_time(moment), x=f"{x:g}", y=_HEIGHT - 4, text_anchor=anchor)
    yield tag("text", clock_time(until), x=_WIDTH - _RIGHT, y=_HEIGHT - 4, text_anchor="end")


def _drawn(line: Line, top: float, kind: str) -> Element:
    step = _PLOT_WIDTH / max(len(line.values) - 1, 1)
    heights = (_PLOT_HEIGHT * (1 - value / top) for value in line.values)
    points = " ".join(f"{_LEFT + place * step:.1f},{_TOP + height:.1f}" for place, height in enumerate(heights))
    return tag("polyline", points=points, class_=f"line {kind}", data_name=line.name)
