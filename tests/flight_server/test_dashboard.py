"""The dashboard for Grafana names metrics that exist, and shows all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.flight_server.test_http import documented

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "nyala.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
NAME = re.compile(r"\b(?:nyala|process)_\w+")
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")


def base(name: str, types: dict[str, str]) -> str:
    """The metric that a series belongs to."""
    for ending in OF_HISTOGRAMS:
        whole = name.removesuffix(ending)
        if whole != name and types.get(whole) == "histogram":
            return whole
    return name


def strangers(expressions: list[str]) -> set[str]:
    """The names in expressions that no metric has; a histogram is none without its ending."""
    types = documented()
    series = {name for text in expressions for name in NAME.findall(text)}
    return {name for name in series if base(name, types) not in types or types.get(name) == "histogram"}


def test_every_name_is_a_metric() -> None:
    assert strangers(EXPRESSIONS) == set()
    assert strangers(["rate(nyala_lag_seconds_bucket[5m])"]) == {"nyala_lag_seconds_bucket"}
    assert strangers(["rate(nyala_log_sync_seconds[5m])"]) == {"nyala_log_sync_seconds"}


def test_every_metric_is_shown() -> None:
    types = documented()
    shown = {base(name, types) for text in EXPRESSIONS for name in NAME.findall(text)}
    assert types.keys() - shown == set()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_counters_are_shown_as_rates(text: str) -> None:
    types = documented()
    for match in NAME.finditer(text):
        name = match[0]
        counts = types.get(name) == "counter" or name.endswith(OF_HISTOGRAMS)
        assert text[: match.start()].endswith("rate(") == counts, name
    assert text.count("(") == text.count(")") and text.count("{") == text.count("}")


def test_panels_are_whole() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in PANELS:
        assert panel["title"] and panel["targets"] and panel["fieldConfig"]["defaults"]["unit"]
        assert all("$instance" in target["expr"] for target in panel["targets"])
