"""A load shows a bar on a terminal, once it is long enough for one."""

import sys

import pytest

from nyala.clients.api import progress
from nyala.clients.api.progress import LoadProgress


@pytest.mark.parametrize(("is_terminal", "patience", "shown"), [(True, 0, True), (True, 60, False), (False, 0, False)])
def test_bar(monkeypatch: pytest.MonkeyPatch, is_terminal: bool, patience: float, shown: bool) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    with LoadProgress("insert homes", 100) as bar:
        bar.advance(10)
        bar.advance(20)
        assert bool(bar._shown) == shown
