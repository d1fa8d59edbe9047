"""One picture a suite: a small panel for each case, a bar for each subject, the spread of the rounds as a whisker.

Where a case has figures of several units, the panel shows those of the first. Of cases that come as rates, and as times
at the same rates, the rates are drawn.
"""

import math
from pathlib import Path
from typing import Any

from .report import RESULTS, Result, Suite, shown

PANELS_A_ROW = 3
COLORS = ["#2f6f8f", "#7fb3c8", "#c8743c", "#8a8a8a", "#5b8c5a", "#b0a04f"]


def draw(suite: Suite) -> Path:
    """Draw a suite into bench/results and return the file."""
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("Agg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    cases = suite.cases()
    cases = {case: row for case, row in cases.items() if case.endswith(": rate")} or cases
    columns = min(PANELS_A_ROW, len(cases))
    rows = math.ceil(len(cases) / columns)
    height = 0.7 + 0.32 * len(suite.subjects)
    figure, panels = pyplot.subplots(rows, columns, figsize=(4.2 * columns, height * rows), squeeze=False)
    colors = dict(zip(suite.subjects, COLORS * len(suite.subjects), strict=False))
    for panel, (case, results) in zip(panels.flat, cases.items(), strict=False):
        unit = next(iter(results.values())).unit
        _panel(panel, case, [result for result in results.values() if result.unit == unit], colors)
    for panel in panels.flat[len(cases) :]:
        panel.axis("off")
    figure.tight_layout()
    file = RESULTS / f"{suite.name}.png"
    figure.savefig(file, dpi=110, metadata={"Software": ""})
    pyplot.close(figure)
    return file


def _panel(panel: Any, case: str, results: list[Result], colors: dict[str, str]) -> None:
    medians = [result.median for result in results]
    below = [result.median - min(result.samples) for result in results]
    above = [max(result.samples) - result.median for result in results]
    names = [result.subject for result in results]
    bars = panel.barh(names, medians, xerr=[below, above], color=[colors[name] for name in names], ecolor="#555555")
    panel.bar_label(bars, [shown(result.median, result.unit) for result in results], padding=4, fontsize=8)
    panel.set_title(case, fontsize=9, loc="left")
    panel.set_xlim(0, max(max(result.samples) for result in results) * 1.35 or 1)
    panel.invert_yaxis()
    panel.set_xticks([])
    panel.tick_params(axis="y", labelsize=8, length=0)
    panel.spines[["top", "right", "bottom"]].set_visible(False)
