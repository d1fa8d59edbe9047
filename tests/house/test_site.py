"""The documentation site: every page is in its navigation and in ``llms.txt``, and it loads nothing from elsewhere.

``make docs`` builds it, and checks its links and anchors: a step of the night.
"""

import posixpath
import re
from pathlib import Path

import pytest
import yaml
from docsite import hosts, llms, pages

NAV = yaml.safe_load((pages.ROOT / "mkdocs.yml").read_text())["nav"]
PLACES = [place for _, place in pages.navigation(NAV)]


def test_every_page_is_in_the_navigation_once() -> None:
    assert len(PLACES) > 60
    assert sorted(PLACES) == sorted([*pages.pages(), pages.API])


def test_every_page_of_the_docs_is_in_the_site() -> None:
    files = {file.relative_to(pages.ROOT).as_posix() for file in (pages.ROOT / "docs").rglob("*.md")}
    assert files <= set(pages.pages().values())


def test_llms_txt_names_every_page_and_says_what_it_is_for() -> None:
    text = llms.index(NAV)
    assert text.startswith("# Nyala\n\n> Nyala is a mutable columnar store.")
    entries = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$", text, re.MULTILINE)
    assert [place for _, place, _ in entries] == PLACES
    assert [entry for entry in entries if len(entry[2]) < 30 or "](" in entry[2]] == []
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "Start" and headings[-1] == "Optional", "what a short context may leave out comes last"


def test_the_site_gives_the_markdown_of_every_page(tmp_path: Path) -> None:
    llms.write(NAV, tmp_path)
    assert [place for place in pages.pages() if not (tmp_path / place).read_text().startswith("# ")] == []
    whole = (tmp_path / "llms-full.txt").read_text()
    assert (tmp_path / "filters.md").read_text().strip() in whole


@pytest.mark.parametrize("place", pages.pages())
def test_links_stay_in_the_site_or_go_to_the_repository(place: str) -> None:
    text = pages.markdown(place, pages.pages()[place])
    prose = re.sub(r"^```.*?^```|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = [
        link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:|#", link)
    ]
    inside = [posixpath.normpath(posixpath.join(posixpath.dirname(place), target)) for target in targets]
    assert [each for each in inside if each not in pages.pages() and not is_picture(each)] == []


def is_picture(place: str) -> bool:
    """Whether a place of the site is a picture: of ``docs/``, or of the benchmarks."""
    return place.endswith(".png") and any((pages.ROOT / top / place).is_file() for top in ("docs", ""))


def test_a_link_out_of_the_site_is_the_address_of_the_file() -> None:
    text = pages.markdown("by-task.md", "docs/README.md")
    assert f"[quick start]({pages.urls()['Source']}/blob/main/examples/quickstart.py)" in text
    assert "[example](index.md#example)" in text and "[dbt](integrations/dbt.md)" in text


def test_a_link_to_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "planted.md").write_text("# Planted\n\n[gone](../gone.py) and `[code](not/a/link)`\n")
    with pytest.raises(pages.BrokenLinkError, match=r"docs/planted.md links to ../gone.py"):
        pages.markdown("planted.md", "docs/planted.md")


def test_anchors_are_those_of_the_repository() -> None:
    assert pages.slug("`as_of`: reading, and TLS (mTLS)", "-") == "as_of-reading-and-tls-mtls"


LOADED = [
    '<script src="https://cdn.example/x.js">',
    '<link rel="stylesheet" href="https://fonts.example/css">',
    "<link href=//x.example/a.css rel=stylesheet>",
    '<img alt="" src="http://x.example/a.png">',
    "@import url(https://x.example/a.css)",
]


@pytest.mark.parametrize("planted", LOADED)
def test_a_page_that_asks_another_host_is_seen(planted: str, tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text('<a href="https://x.example">x</a><script src="assets/x.js"></script>')
    (tmp_path / "bad.html").write_text(planted)
    assert hosts.offenders(tmp_path) == ["bad.html"]
