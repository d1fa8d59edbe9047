"""The picture of a tablet: each rowset on disk by its key range and its size, as Kudu draws them.

From left to right are keys: the first and last keys of all rowsets, in order and evenly spaced. The area of a rowset is
not its size, its height is. Rowsets whose key ranges overlap are drawn above one another: the more there are, the more
a look-up without an index would search.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.phrases import size
from ....schemas.store.description import RowsetStats
from .html import Element, table, tag

_WIDTH, _HEIGHT_MIN, _HEIGHT_MAX = 1000, 6, 60
_GAP = 2
_LISTED = 20


def tablet_picture(rowsets: Sequence[RowsetStats], about: str) -> Element:
    """Return the console's picture of the rowsets of a tablet as SVG; ``about`` describes it for those who do not see
    it."""
    steps = max((rowset.last_key + 1 for rowset in rowsets), default=1)
    largest = max((rowset.bytes_on_disk for rowset in rowsets), default=1) or 1
    layers: list[list[RowsetStats]] = []
    for rowset in sorted(rowsets, key=lambda each: (each.first_key, each.last_key)):
        layer = next((each for each in layers if each[-1].last_key < rowset.first_key), None)
        if layer is None:
            layers.append([rowset])
        else:
            layer.append(rowset)
    bars: list[Element] = []
    top = _GAP
    for layer in layers:
        heights = [_height(rowset.bytes_on_disk, largest) for rowset in layer]
        bottom = top + max(heights)
        for rowset, height in zip(layer, heights, strict=True):
            left = _WIDTH * rowset.first_key / steps
            width = max(_WIDTH * (rowset.last_key + 1 - rowset.first_key) / steps - 1, 1)
            bars += _bar(rowset, left, bottom, width, height)
        top = bottom + _GAP
    return tag("svg", tag("title", about), *bars, viewBox=f"0 0 {_WIDTH} {top:g}", role="img", class_="rowsets")


def rowset_numbers(rowsets: Sequence[RowsetStats]) -> Element:
    """Return the largest rowsets as a table of the console, for those who cannot point at the picture."""
    largest = sorted(rowsets, key=lambda each: -each.bytes_on_disk)[:_LISTED]
    rows = [
        (
            f"{each.first_key + 1:,} to {each.last_key + 1:,}",
            f"{each.rows:,}",
            size(each.bytes_on_disk),
            size(each.redo_bytes),
            size(each.undo_bytes),
        )
        for each in largest
    ]
    shown = f"The {_LISTED} largest of {len(rowsets):,} rowsets" if len(rowsets) > _LISTED else "Rowsets"
    about = "Keys are numbered among the first and last ones of all rowsets."
    return tag(
        "details",
        tag("summary", f"{shown} in numbers"),
        table(("Keys", "Rows", "On disk", "Changes", "Old values"), rows, about=about),
    )


def _height(count: int, largest: int) -> float:
    return _HEIGHT_MIN + (_HEIGHT_MAX - _HEIGHT_MIN) * count / largest


def _bar(rowset: RowsetStats, left: float, bottom: float, width: float, height: float) -> list[Element]:
    """Return columns, changes and old values of a rowset above one another, in proportion."""
    base = rowset.bytes_on_disk - rowset.redo_bytes - rowset.undo_bytes
    text = f"{rowset.rows:,} rows, {rowset.bytes_on_disk:,} bytes, {rowset.redo_bytes:,} of them changes"
    bars: list[Element] = []
    for part, count in (("base", base), ("redo", rowset.redo_bytes), ("undo", rowset.undo_bytes)):
        share = height * count / max(rowset.bytes_on_disk, 1)
        if share:
            bottom -= share
            place = {"x": f"{left:.1f}", "y": f"{bottom:.1f}", "width": f"{width:.1f}", "height": f"{share:.1f}"}
            bars.append(tag("rect", tag("title", text), class_=part, **place))
    return bars
