"""The figures of a soak as JSON, and a picture of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.report import machine
from tests.campaigns.soak.soak import Outcome

_PANELS = (
    ("memory, MiB", {"anonymous_mib": "its own", "mapped_mib": "mapped files"}),
    ("open files and threads", {"files": "files", "threads": "threads"}),
    ("disk, MiB", {"disk_mib": "all", "log_mib": "the log"}),
)
_COLORS = ("#2f6f8f", "#c8743c")
_VERBS_COLUMNS = 3


def keep(outcome: Outcome, folder: Path) -> None:
    """Write ``soak.json`` and ``soak.png`` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    told = asdict(outcome) | {"machine": machine(), "is_good": outcome.is_good}
    told["samples"] = _columns(told["samples"])
    told["latencies"] = {verb: _columns(parts) for verb, parts in told["latencies"].items()}
    (folder / "soak.json").write_text(json.dumps(told) + "\n")
    _draw(outcome, folder / "soak.png")


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return records as columns, which take a tenth of the text."""
    return {name: [round(row[name], 6) for row in rows] for name in (rows[0] if rows else ())}


def _draw(outcome: Outcome, file: Path) -> None:
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("Agg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    verb_rows = -(-len(outcome.latencies) // _VERBS_COLUMNS)
    figure, panels = pyplot.subplots(1 + verb_rows, 3, figsize=(12.6, 2.3 * (1 + verb_rows)), squeeze=False)
    minutes = [each.at / 60 for each in outcome.samples]
    for panel, (title, series) in zip(panels[0], _PANELS, strict=True):
        for (name, label), color in zip(series.items(), _COLORS, strict=True):
            panel.plot(minutes, [getattr(each, name) for each in outcome.samples], color=color, label=label, lw=1)
        _finish(panel, title)
    for panel, (verb, parts) in zip(panels[1:].flat, outcome.latencies.items(), strict=False):
        for name, color in zip(("p50", "p99"), _COLORS, strict=True):
            values = [1000 * getattr(each, name) for each in parts]
            panel.plot([each.at / 60 for each in parts], values, color=color, label=name, lw=1)
        _finish(panel, f"{verb}, ms")
    for panel in panels[1:].flat[len(outcome.latencies) :]:
        panel.axis("off")
    figure.suptitle(f"{outcome.clients} clients, {outcome.seconds / 60:.0f} minutes", fontsize=10, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(file, dpi=100, metadata={"Software": ""})
    pyplot.close(figure)


def _finish(panel: Any, title: str) -> None:
    panel.set_title(title, fontsize=9, loc="left")
    panel.set_ylim(bottom=0)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=7, frameon=False, loc="lower right")
    panel.spines[["top", "right"]].set_visible(False)
