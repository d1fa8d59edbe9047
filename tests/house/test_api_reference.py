"""The API reference: every public name is documented, and the pages build with all of them."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "api_reference.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("api_reference", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _load()


@pytest.mark.parametrize("name", reference.PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert list(reference.undocumented(importlib.import_module(name))) == []


def test_lazily_loaded_names_are_public() -> None:
    assert {"Table", "open", "hash", "RowErrors"} <= set(reference.public_names(importlib.import_module("nyala")))


def test_a_missing_docstring_is_seen() -> None:
    class Bare:
        """Documented, unlike its method and property."""

        def method(self) -> None: ...

        @property
        def size(self) -> int:
            return 0

    module: Any = ModuleType("planted")
    module.__all__ = ["Bare", "function"]
    module.Bare, module.function = Bare, lambda: None
    assert list(reference.undocumented(module)) == ["planted.Bare.method", "planted.Bare.size", "planted.function"]


def test_the_reference_builds(tmp_path: Path) -> None:
    if importlib.util.find_spec("pdoc") is None and not os.environ.get("CI"):
        pytest.skip("pdoc is missing: make .venv/.installed-dev")
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "nyala.html").read_text()
    places = [first.index(f'href="#{name}"') for name in ("open", "connect", "Database", "Table", "RowErrors")]
    assert places == sorted(places), "a reader meets the beginning first"
    assert re.search(r"prefers-color-scheme: ?dark", first)
    assert "PydanticUndefined" not in "".join(file.read_text() for file in tmp_path.rglob("*.*"))
    for name in reference.PUBLIC:
        page = (tmp_path / f"{name.replace('.', '/')}.html").read_text()
        names = reference.public_names(importlib.import_module(name))
        assert names and [each for each in names if f'id="{each}"' not in page] == []
    assert (tmp_path / "index.html").exists()
