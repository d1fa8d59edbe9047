"""The documents tell the truth: links resolve, named tests exist, marked examples run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIDDEN = {".venv", ".git", ".typing", "build", "dist", "node_modules", ".pytest_cache"}

DOCUMENTS = sorted(
    file.relative_to(ROOT) for file in ROOT.rglob("*.md") if not HIDDEN & set(file.relative_to(ROOT).parts)
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
RUNNABLE = re.compile(r"<!-- run -->\n+```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEST_PATH = re.compile(r"`(tests/[\w/.-]+)(?:::(\w+))?`")


def prose(document: Path) -> str:
    """Return a document without its code blocks, where # and brackets mean other things."""
    return FENCE.sub("", (ROOT / document).read_text())


def anchor(heading: str) -> str:
    """Return the fragment that a heading is linked by."""
    plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return plain.replace(" ", "-")


def broken_links(document: Path) -> list[str]:
    targets = [target for target in LINK.findall(prose(document)) if not is_url(target)]
    return [target for target in targets if not resolves(document, target)]


def is_url(target: str) -> bool:
    return re.match(r"[a-z]+:", target) is not None


def resolves(document: Path, target: str) -> bool:
    path, _, fragment = target.partition("#")
    file = (ROOT / document).parent / path if path else ROOT / document
    if not file.exists() or not fragment:
        return file.exists()
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return fragment in map(anchor, headings)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_resolve(document: Path) -> None:
    assert broken_links(document) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_one_title_and_it_comes_first(document: Path) -> None:
    lines = prose(document).strip().splitlines()
    titles = [line for line in lines if line.startswith("# ")]
    assert len(titles) == 1 and lines[0] == titles[0]


def test_a_page_has_a_length_that_is_read_in_one_go() -> None:
    pages = {page: len(page.read_text().splitlines()) for page in (ROOT / "docs").rglob("*.md")}
    assert {page.name: count for page, count in pages.items() if count > 400 and page.name != "cli-reference.md"} == {}


def test_named_tests_exist() -> None:
    missing = []
    for document in DOCUMENTS:
        for path, function in TEST_PATH.findall((ROOT / document).read_text()):
            file = ROOT / path
            if not file.exists() or (function and f"def {function}(" not in file.read_text()):
                missing.append(f"{document}: {path} {function}")
    assert missing == []


def promises() -> dict[str, str]:
    """Return the promises that the pages of guarantees make: heading -> paragraph."""
    promised: dict[str, str] = {}
    for page in sorted((ROOT / "docs").glob("guarantees*.md")):
        text = page.read_text().partition("## What the tests catch")[0]
        parts = re.split(r"^### (.*)$", text, flags=re.MULTILINE)[1:]
        promised |= dict(zip(parts[::2], parts[1::2], strict=True))
    return promised


@pytest.mark.parametrize("promise", promises(), ids=anchor)
def test_every_promise_names_its_proof(promise: str) -> None:
    assert TEST_PATH.search(promises()[promise]), "a promise without a test is a hope"


EXAMPLES = [
    pytest.param(block, id=f"{document}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(RUNNABLE.findall((ROOT / document).read_text()))
]


@pytest.mark.parametrize("block", EXAMPLES)
def test_marked_examples_run(block: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", block], tmp_path)


SCRIPTS = [
    pytest.param(script, id=script.name, marks=[pytest.mark.spark] if "spark" in script.name else [])
    for script in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_run(script: Path, tmp_path: Path) -> None:
    if "spark" in script.name and shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java 17: .ci/java.sh installs it on Debian")
    less = ["--months", "3"] if "spark" in script.name else []
    run([sys.executable, str(script), *less], tmp_path)


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_map_of_tests_names_each_folder() -> None:
    listed = set(re.findall(r"^\| `(\w+)/` \|", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE))
    tops = [ROOT / "tests", ROOT / "tests" / "campaigns"]
    folders = {each.name for top in tops for each in top.iterdir() if each.is_dir() and each.name[0] not in "._"}
    assert len(folders) > 20 and listed == folders
