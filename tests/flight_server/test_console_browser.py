"""The console in a browser: it looks right in light and dark, is used by keyboard, and needs no script.

``NYALA_SCREENSHOTS=docs/images`` keeps the pictures that the documentation shows.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from tests.doubles.browser import Browser, program
from tests.flight_server.http_client import Port
from tests.flight_server.served import SCHEMA

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium is installed: apt-get install chromium")

PAGES = {
    "tables": "/console",
    "table": "/console/table?name=homes",
    "activity": "/console/activity",
    "scans": "/console/scans",
    "writes": "/console/writes",
    "maintenance": "/console/maintenance",
    "memory": "/console/memory",
    "rows": "/console/rows?name=homes",
    "users": "/console/users",
    "jobs": "/console/jobs",
    "servers": "/console/servers",
    "settings": "/console/settings",
    "log": "/console/log",
}
SHOWN = {("table", "light"), ("activity", "dark"), ("scans", "dark")}
"""The pictures in docs/console.md."""
ROWS = (
    *(range(0, 160_000, 4), range(40_001, 240_000, 4), range(100_002, 200_000, 4)),
    *(range(3, 60_000, 4), range(240_000, 260_000), range(270_000, 300_000)),
)
"""Keys of the rowsets."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser, busy: Port) -> Iterator[Browser]:
    """The browser, which leaves the pages of a server before that ends."""
    yield opened
    opened.open("about:blank")
    opened.complaints.clear()


@pytest.fixture
def busy(port: Callable[..., Port]) -> Port:
    """A server with rowsets that overlap, changes, old values, scans and writes."""
    one = port()
    with nyala.connect(one.served.url) as db:
        homes = db.table("homes")
        for ids in ROWS:
            cities = [f"city {number % 97}" for number in ids]
            columns = [pa.array(ids), pa.array(cities), pa.array(ids, pa.float64())]
            homes.upsert(pa.record_batch(columns, schema=SCHEMA))
            homes.maintain("flush")
        homes.update([{"id": number, "price": 2.0} for number in range(0, 40_000, 4)])
        homes.maintain("flush_deltas")
    for where in ("id < 5000", "city = 'city 7'", "price > 1e12", "id >= 295000"):
        one.served.get({"table": "homes", "where": where})
    one.served.get({"table": "homes", "aggregate": {"n": ["*", "count"]}, "group_by": ["city"]})
    return one


def load(busy: Port) -> None:
    """Read and write for some points of the charts, so that their pictures have lines."""
    for number in range(120):
        busy.served.put("homes", busy.served.rows(1 + 37 * number % 300))
        for where in ("id < 5000", "city = 'city 7'")[: number % 3]:
            busy.served.get({"table": "homes", "where": where})
        time.sleep(0.1)


def contrast(browser: Browser, element: str) -> float:
    """Return the contrast of a text with its background, as WCAG 2 defines it."""
    return browser.value(
        """(() => {
        const parts = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const light = color => parts(color).map(c => c / 255)
            .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const text = light(getComputedStyle(document.querySelector('ELEMENT')).color);
        const back = light(getComputedStyle(document.body).backgroundColor);
        return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
        })()""".replace("ELEMENT", element)
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_look_right(busy: Port, browser: Browser, scheme: str, tmp_path: Path) -> None:
    kept = Path(os.environ.get("NYALA_SCREENSHOTS", tmp_path))
    browser.scheme(scheme)
    backs = set()
    for name, path in PAGES.items():
        browser.open(busy.http.url + path)
        if name == "activity":
            browser.wait_for("document.querySelectorAll('figure').length >= 7")
            if "NYALA_SCREENSHOTS" in os.environ:
                load(busy)
                browser.open(busy.http.url + path)
        assert browser.value("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
        backs.add(browser.value("getComputedStyle(document.body).backgroundColor"))
        for element in ("h1", "nav a", "th, p"):
            assert contrast(browser, element) >= 4.5, (name, element)
        if (name, scheme) in SHOWN:
            browser.screenshot(kept / f"console-{name}-{scheme}.png")
            assert (kept / f"console-{name}-{scheme}.png").stat().st_size > 10_000
    assert backs == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 20, 25)"}
    assert browser.complaints == []


def test_a_phone_shows_each_value(busy: Port, browser: Browser) -> None:
    browser.size(360, 740)
    try:
        for name, path in PAGES.items():
            browser.open(busy.http.url + path)
            assert browser.value("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
            outside = browser.value(
                """[...document.querySelectorAll('main td, main dd, figure strong')]
                .filter(cell => cell.getClientRects().length && cell.textContent).map(cell => {
                    const range = document.createRange();
                    range.selectNodeContents(cell);
                    return [cell.textContent, range.getBoundingClientRect()];
                })
                .filter(([_, box]) => box.left < 0 || box.right > innerWidth + 1).map(([text]) => text)"""
            )
            assert outside == [], name
    finally:
        browser.size(1280, 1250)
    assert browser.complaints == []


def test_rowsets_are_drawn_by_their_ranges_and_sizes(busy: Port, browser: Browser) -> None:
    browser.open(busy.http.url + PAGES["table"])
    boxes = browser.value(
        """[...document.querySelectorAll('.rowsets rect')].map(bar => {
        const box = bar.getBoundingClientRect();
        return {kind: bar.classList[0], left: box.left, right: box.right, top: box.top, bottom: box.bottom};
        })"""
    )
    bases = [box for box in boxes if box["kind"] == "base"]
    assert len(bases) == len(ROWS) and {box["kind"] for box in boxes} >= {"base", "redo"}
    for place, one in enumerate(boxes):
        assert one["right"] - one["left"] >= 1 and one["bottom"] - one["top"] > 0
        for other in boxes[place + 1 :]:
            beside = one["right"] <= other["left"] + 0.1 or other["right"] <= one["left"] + 0.1
            above = one["bottom"] <= other["top"] + 0.1 or other["bottom"] <= one["top"] + 0.1
            assert beside or above, (one, other)


def test_a_button_is_pressed_by_keyboard(busy: Port, browser: Browser) -> None:
    browser.open(busy.http.url + PAGES["table"])
    focused = "document.activeElement.textContent"
    browser.tab()
    assert browser.value(focused) == "Skip to the content"
    assert browser.value("document.activeElement.getBoundingClientRect().left >= 0")
    seen = []
    while browser.value("document.activeElement.tagName") != "BUTTON":
        browser.tab()
        seen.append(browser.value(focused))
        assert len(seen) < 50 and browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert "Tables" in seen and browser.value(focused) == "Flush rows"
    while browser.value(focused) != "Merge rowsets":
        browser.tab()
    browser.enter()
    browser.wait_for("location.pathname == '/console/maintenance' && document.readyState == 'complete'")
    assert browser.value("document.querySelector('.bad')") is None
    browser.wait_for("[...document.querySelectorAll('td')].some(cell => cell.textContent == 'compact table homes')")
    assert busy.served.store.table_stats("homes").tablets[0].average_rowset_height == 1
    assert browser.complaints == []


def test_live_parts_follow_until_they_are_paused(busy: Port, browser: Browser) -> None:
    browser.open(busy.http.url + PAGES["writes"].replace("writes", "scans"))
    count = "document.querySelectorAll('tbody tr').length"
    before = browser.value(count)
    busy.served.get({"table": "homes", "where": "id < 10"})
    browser.wait_for(f"{count} == {before + 1}")
    browser.value("document.querySelector('button').click()")
    assert browser.value("document.querySelector('button').textContent") == "Resume updates"
    assert browser.complaints == []


def test_a_graph_tells_its_values_where_it_is_touched(busy: Port, browser: Browser) -> None:
    browser.open(busy.http.url + PAGES["activity"])
    browser.wait_for("document.querySelectorAll('svg.graph').length >= 7")
    told = browser.value(
        """[...document.querySelectorAll('svg.graph')].map(graph => {
        const box = graph.getBoundingClientRect();
        const at = {bubbles: true, clientX: box.right - 1, clientY: box.top + 9};
        graph.dispatchEvent(new PointerEvent('pointerdown', at));
        return graph.parentElement.querySelector('output').textContent;
        })"""
    )
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d: \D*[\d.,]+\D*.*", each) for each in told), told
    assert "writes" in told[0] and "received" in told[3] and told[-1].endswith("iB")
    assert browser.complaints == []


def test_pages_need_no_script(busy: Port, browser: Browser) -> None:
    browser.has_scripts(False)
    try:
        browser.open(busy.http.url + PAGES["activity"])
        tree = browser.ask("DOM.getDocument", depth=-1)["root"]
        names = [each["nodeName"] for each in _nodes(tree)]
        assert "BUTTON" not in names and names.count("TABLE") >= 1
        browser.open(busy.http.url + PAGES["scans"])
        assert [each["nodeName"] for each in _nodes(browser.ask("DOM.getDocument", depth=-1)["root"])].count("A") > 10
    finally:
        browser.has_scripts(True)


def _nodes(node: dict[str, object]) -> Iterator[dict[str, object]]:
    yield node
    children = node.get("children", [])
    assert isinstance(children, list)
    for child in children:
        yield from _nodes(child)
