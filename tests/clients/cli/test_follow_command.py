"""``nyala follow``: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_files_of_a_folder_are_loaded(run: Any, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id;city\n1;Oslo\n")
    assert run("create", "homes", "--schema", "id int64, city string, primary key (id)", "--data", store).code == 0
    words = ("follow", str(tmp_path / "in"), "--table", "homes", "--data", store, "--once", "--delimiter", ";")
    first = run(*words)
    assert first.code == 0 and first.out.endswith("1 file loaded, 1 row\n") and "a.csv, 1 row" in first.out
    (tmp_path / "in" / "b.csv").write_text("id;city\nx;Oslo\n")
    second = run(*words)
    assert second.code == 1 and "0 files loaded, 1 refused" in second.out and "line 2" in second.err
    assert json.loads(run(*words, "--json").out) == {"table": "homes", "loaded": 0, "refused": 0, "rows": 0, "left": 0}
    assert "Oslo" in run("scan", "homes", "--data", store).out
