"""The console: its pages show what is there, to those who may see it, and change nothing."""

from __future__ import annotations

import base64
import itertools
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import nyala
from nyala.flight_server.http.console.frame import page
from nyala.flight_server.http.console.html import tag
from nyala.flight_server.http.console.picture import tablet_picture
from nyala.flight_server.http.console.words import duration
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.serve.port import as_bearer
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import NotFoundError, StoreError, UnavailableError
from nyala.schemas.phrases import size
from nyala.schemas.store.description import RowsetStats
from nyala.schemas.store.grants import GrantChange, Privilege
from nyala.schemas.table.partition import hash as by_hash
from tests.flight_server.http_client import Port
from tests.flight_server.served import SCHEMA

OPERATORS = (
    *("/console/activity", "/console/scans", "/console/writes", "/console/maintenance", "/console/memory"),
    *("/console/jobs", "/console/servers", "/console/settings", "/console/log"),
)
PAGES = ("/console", "/console/table?name=homes", "/console/rows?name=homes", "/console/users", *OPERATORS)
NASTY = '<script>alert("1")</script> & /..'


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def tree(text: str) -> ElementTree.Element:
    """The page as XML, which it is but for the elements without an end."""
    body = re.sub(r"<(meta|link|input)([^>]*)>", r"<\1\2/>", text.removeprefix("<!doctype html>"))
    return ElementTree.fromstring(body)


def words(text: str) -> str:
    return " ".join(" ".join(tree(text).itertext()).split())


def filled(port: Port) -> None:
    with nyala.connect(port.served.url) as db:
        homes = db.table("homes")
        for start in (0, 5000, 2500):
            homes.upsert([{"id": start + number, "city": "hunter2", "price": 1.0} for number in range(3000)])
            homes.maintain("flush")


def test_tables_and_their_rowsets_are_shown(port: Callable[..., Port]) -> None:
    one = port()
    filled(one)
    status, text = one.ask("/console")
    assert status == 200 and "homes 8,000" in words(text)
    status, text = one.ask("/console/table?name=homes")
    assert status == 200 and "8,000 rows" in words(text) and "3 rowsets" in words(text)
    assert "id int64 key" in words(text) and "hunter2" not in text
    bars = [each for each in tree(text).iter("rect") if each.get("class") == "base"]
    assert len(bars) == 3
    status, text = one.ask("/console/activity")
    assert status == 200 and re.search(r"flush\s+3\s", words(text)) and "Running requests" in text
    status, text = one.ask("/console/memory")
    rows = {" ".join(cell.text or "" for cell in row[:-1]): row[-1].text or "" for row in tree(text).iter("tr")}
    assert status == 200 and int(rows["Records written to the log: commits, and notes of the store. "]) >= 3
    assert rows["Work of clients that has not ended. pins"] == "0"
    assert re.search(r"page_cache [\d.]+ (B|KiB|MiB) [\d.]+ (MiB|GiB)", words(text))
    assert re.search(r"all [\d.]+ (B|KiB|MiB) [\d.]+ (MiB|GiB)", words(text)), "the budget"


def test_pages_can_be_used_by_keyboard_and_read_aloud(port: Callable[..., Port]) -> None:
    one = port()
    filled(one)
    for path in PAGES:
        root = tree(one.ask(path)[1])
        (body,) = root.iter("body")
        assert (body[0].tag, body[0].get("href")) == ("a", "#content") and root.get("lang") == "en"
        assert [each.get("id") for each in root.iter("main")] == ["content"]
        headings = [int(each.tag[1]) for each in root.iter() if re.fullmatch("h[1-6]", each.tag)]
        assert headings[0] == 1 and headings.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(headings))
        assert len([each for each in root.iter("a") if each.get("aria-current")]) == 1
        assert all(each.get("scope") for each in root.iter("th"))
        for drawing in root.iter("svg"):
            assert drawing.get("role") == "img" and drawing[0].tag == "title" and drawing[0].text


def test_what_users_named_is_only_text(port: Callable[..., Port]) -> None:
    one = port()
    with nyala.connect(one.served.url) as db:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field(NASTY, pa.string())])
        db.create_table(NASTY, schema, primary_key=["id"])
    text = one.ask("/console")[1]
    (link,) = [each.get("href") for each in tree(text).iter("a") if each.text == NASTY]
    status, table = one.ask(link or "")
    assert status == 200 and f"{NASTY} string" in words(table)
    for shown in (text, table):
        assert "<script" not in shown


def test_all_text_and_attributes_are_escaped() -> None:
    text = page(NASTY, tag("p", NASTY, title=NASTY)).write().decode()
    (found,) = tree(text).iter("p")
    assert (found.text, found.get("title")) == (NASTY, NASTY)


def test_pages_ask_who_calls(port: Callable[..., Port], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token, _ = create_token(tokens, "alice")
    one = port(ServeOptions(tokens=tokens, admins=("alice",)))
    basic = base64.b64encode(f"anyone:{token}".encode()).decode()
    for path in PAGES:
        with pytest.raises(urllib.error.HTTPError, match="401") as caught:
            urllib.request.urlopen(one.http.url + path, timeout=20)
        assert "Basic" in caught.value.headers["www-authenticate"]
        assert one.ask(path, authorization=f"Basic {basic[:-6]}AAAA==")[0] == 401
        assert one.ask(path, authorization="Basic ???")[0] == 401
        assert one.ask(path, authorization=f"Basic {basic}")[0] == one.ask(path, token)[0] == 200


def test_pages_show_what_is_granted(port: Callable[..., Port], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token, _ = create_token(tokens, "bob")
    one = port(ServeOptions(tokens=tokens))
    assert [one.ask(path, token)[0] for path in OPERATORS] == [403] * len(OPERATORS)
    assert one.ask("/console/scan?id=x", token)[0] == 403
    assert one.ask("/console/table?name=homes", token)[0] in (403, 404)
    status, text = one.ask("/console", token)
    assert status == 200 and "homes" not in text
    one.served.store.grant(GrantChange(user="bob", table="homes", privileges=[Privilege.READ]))
    assert "homes" in one.ask("/console", token)[1]
    assert one.ask("/console/table?name=homes", token)[0] == 200
    assert [one.ask(path, token)[0] for path in OPERATORS] == [403] * len(OPERATORS)


def test_pages_may_load_nothing_and_take_no_changes(port: Callable[..., Port]) -> None:
    one = port()
    for path in PAGES:
        with urllib.request.urlopen(one.http.url + path, timeout=20) as answer:
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
        request = urllib.request.Request(one.http.url + path, b"", method="POST")
        with pytest.raises(urllib.error.HTTPError, match="403" if path == "/console/maintenance" else "405"):
            urllib.request.urlopen(request, timeout=20)


def test_a_table_without_numbers_spoils_no_page(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    one = port()
    numbers = type(one.served.store).table_stats
    failures: dict[str, StoreError] = {"homes": UnavailableError("not now"), "gone": NotFoundError("dropped")}
    with nyala.connect(one.served.url) as db:
        for name in ("gone", "here"):
            db.create_table(name, SCHEMA, primary_key=["id"])

    def some(store: Any, name: str) -> Any:
        if name in failures:
            raise failures[name]
        return numbers(store, name)

    monkeypatch.setattr(type(one.served.store), "table_stats", some)
    status, text = one.ask("/console")
    assert status == 200 and "homes not available" in words(text)
    assert "here 0 0 B" in words(text) and "gone" not in text


def test_the_bare_address_leads_to_the_console(port: Callable[..., Port]) -> None:
    one = port()
    with urllib.request.urlopen(f"{one.http.url}/", timeout=20) as answer:
        assert answer.url == f"{one.http.url}/console"


def test_percentiles_are_possible(port: Callable[..., Port]) -> None:
    one = port()
    one.served.put("homes", one.served.rows(1))
    timed = one.served.server.calls.metrics.of("do_put")
    (line,) = [row for row in tree(one.ask("/console/writes")[1]).iter("tr") if row[0].text == "do_put"]
    _, count, *shown = (cell.text or "" for cell in line)
    assert count == "1" and set(shown) == {duration(timed.total)}, "one request: it is each percentile"


def test_each_page_says_which_server_it_is_and_who_looks(port: Callable[..., Port], tmp_path: Path) -> None:
    token, _ = create_token(tmp_path / "tokens.json", "alice")
    one = port(ServeOptions(tokens=tmp_path / "tokens.json", admins=("alice",)))
    for path in PAGES:
        (header,) = tree(one.ask(path, token)[1]).iter("header")
        told = {each.get("class"): each.text for each in header}
        assert told["user"] == "alice" and (told["server"] or "").endswith(f":{one.served.server.port}")
        assert version("nyala") in "".join(header.itertext())
    for stranger in (one.ask("/console"), one.ask("/console", "nyala_wrong")):
        assert stranger[0] == 401 and version("nyala") not in stranger[1] and "alice" not in stranger[1]
    assert "no login" in words(port().ask("/console")[1])


def test_who_does_not_operate_is_led_to_no_page_that_is_denied(port: Callable[..., Port], tmp_path: Path) -> None:
    (bob, _), (admin, _) = (create_token(tmp_path / "tokens.json", name) for name in ("bob", "admin"))
    one = port(ServeOptions(tokens=tmp_path / "tokens.json", admins=("admin",)))

    def links(token: str) -> list[str]:
        (nav,) = tree(one.ask("/console", token)[1]).iter("nav")
        return [each.get("href") or "" for each in nav.iter("a")]

    assert {*OPERATORS, "/metrics"} <= {*links(admin)}
    assert links(bob) and all(one.ask(link, bob)[0] == 200 for link in links(bob))


def test_the_colours_are_chosen_without_a_script(port: Callable[..., Port]) -> None:
    one = port()

    def chosen(to: str, came_from: str) -> tuple[str, str]:
        request = urllib.request.Request(f"{one.http.url}/console/scheme?to={to}", headers={"referer": came_from})
        with pytest.raises(urllib.error.HTTPError, match="303") as caught:
            urllib.request.build_opener(Stay).open(request, timeout=20)
        return caught.value.headers["location"], caught.value.headers["set-cookie"]

    here = one.http.url
    back, cookie = chosen("dark", f"{here}/console/table?name=homes")
    assert back == "/console/table?name=homes" and "Path=/console" in cookie and "HttpOnly" in cookie
    for path in ("/console", "/console/nothing-like-it", "/console/table?name=castles"):
        text = one.ask(path, cookie=cookie.partition(";")[0])[1]
        assert text.startswith("{") or tree(text).get("data-scheme") == "dark"
    assert tree(one.ask("/console", cookie='nyala-scheme="><script>')[1]).get("data-scheme") is None
    assert tree(one.ask("/console", cookie=chosen("purple", here)[1])[1]).get("data-scheme") is None
    for elsewhere in ("http://evil.example/console", f"{here}.evil.example/console", f"{here}/metrics", "", "//x"):
        assert chosen("light", elsewhere)[0] == "/console"
    for no_address in ("http://[", "//[::1/console"):
        assert chosen("light", no_address)[0] == "/console"


def listed(text: str) -> list[str]:
    """The first cells of the rows of a page's first table, without its totals."""
    return ["".join(row[0].itertext()) for row in next(tree(text).iter("tbody"))]


def test_tables_are_sorted_searched_and_added_up(port: Callable[..., Port]) -> None:
    one = port()
    with nyala.connect(one.served.url) as db:
        for name, count in (("Houses", 3), ("empty", 0), ("flats", 10)):
            db.create_table(name, SCHEMA, primary_key=["id"])
            if count:
                db.table(name).insert(one.served.rows(count))
    by_name = ["Houses", "empty", "flats", "homes"]
    assert listed(one.ask("/console")[1]) == by_name
    assert listed(one.ask("/console?order=down")[1]) == by_name[::-1]
    text = one.ask("/console?sort=rows")[1]
    assert listed(text)[:2] == ["flats", "Houses"]
    titles = {"".join(each.itertext()): each for each in tree(text).iter("th")}
    assert {name: each.get("aria-sort") for name, each in titles.items() if each.get("aria-sort")} == {
        "Rows": "descending"
    }
    assert listed(one.ask(titles["Rows"][0].get("href") or "")[1])[-2:] == ["Houses", "flats"]
    (total,) = tree(text).iter("tfoot")
    assert [cell.text for cell in total[0]][:2] == ["4 tables", "13"]
    for path in ("/console?q=HO", "/console?sort=rows&q=ho"):
        assert set(listed(one.ask(path)[1])) == {"Houses", "homes"}
    (form,) = tree(one.ask("/console?sort=rows&order=up&q=ho")[1]).iter("form")
    fields = {each.get("name"): each.get("value") for each in form.iter("input")}
    chosen = [each.get("value") for each in form.iter("option") if each.get("selected") is not None]
    assert (form.get("method"), fields, chosen) == ("get", {"q": "ho"}, ["rows", "up"])
    assert "No table has" in words(one.ask(f"/console?q={urllib.parse.quote(NASTY)}")[1])
    for wrong in ("sort=cells", "order=sideways", "sort=rows&order=1"):
        assert one.ask(f"/console?{wrong}")[0] == 400


def test_many_tables_are_not_sorted_by_numbers(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    one = port()
    monkeypatch.setattr(type(one.served.store), "tables", lambda _: [f"t{number:04}" for number in range(1001)])
    monkeypatch.setattr(type(one.served.store), "table_stats", lambda *_: 1 / 0)
    assert one.ask("/console?sort=rows")[0] == 400


def test_what_is_not_there_is_an_error(port: Callable[..., Port]) -> None:
    one = port()
    assert one.ask("/console/table?name=castles")[0] == 404
    assert one.ask("/console/table")[0] == 404
    for wrong in ("-1", "x", "1" * 30, "\u0663"):
        assert one.ask(f"/console?first={urllib.parse.quote(wrong)}")[0] == 400


def test_many_tablets_are_shown_in_parts(port: Callable[..., Port]) -> None:
    one = port()
    with nyala.connect(one.served.url) as db:
        db.create_table("many", SCHEMA, primary_key=["id"], partition_by=[by_hash("id", buckets=120)])
    seen: list[str] = []
    link: str | None = "/console/table?name=many"
    while link:
        text = one.ask(link)[1]
        seen += [each.text or "" for each in tree(text).iter("h3")]
        later = [each.get("href") for each in tree(text).iter("a") if (each.text or "").startswith("Later")]
        link = later[0] if later else None
    assert len(seen) == len(set(seen)) == 120


def test_rowsets_lie_above_one_another_where_they_overlap() -> None:
    def rowset(first: int, last: int, size: int) -> RowsetStats:
        return RowsetStats(first_key=first, last_key=last, rows=1, bytes_on_disk=size, redo_bytes=size // 4)

    picture = tablet_picture([rowset(0, 3, 100), rowset(4, 5, 200), rowset(2, 5, 400)], "three")
    pieces: list[str] = []
    picture.write(pieces)
    drawn = ElementTree.fromstring("".join(pieces))
    bars = {
        (each.get("class"), each.get("x")): float(each.get("height") or 0) + float(each.get("y") or 0)
        for each in drawn.iter("rect")
    }
    assert bars["base", "0.0"] == pytest.approx(bars["base", "666.7"], abs=0.2)  # beside one another
    assert bars["base", "333.3"] > bars["base", "0.0"]
    heights = {
        x: sum(float(each.get("height") or 0) for each in drawn.iter("rect") if each.get("x") == x)
        for x in ("0.0", "666.7", "333.3")
    }
    assert heights["0.0"] < heights["666.7"] < heights["333.3"]


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_the_password_of_a_browser_is_the_token() -> None:
    assert as_bearer("Basic " + base64.b64encode(b"me:nyala_x:y").decode()) == "Bearer nyala_x:y"
    assert as_bearer("Bearer nyala_x") == "Bearer nyala_x"
    assert as_bearer("Basic ???") == "Basic ???"
