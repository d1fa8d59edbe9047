"""Collect the ``*_contract.py`` files: each runs one set of tests against every implementation of a protocol."""

from pathlib import Path

import pytest


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if file_path.name.endswith("_contract.py"):
        return pytest.Module.from_parent(parent, path=file_path)
    return None
