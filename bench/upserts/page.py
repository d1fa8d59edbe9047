"""The figures of upserts as README.md shows them: a row for each subject, and a picture with logarithmic scales."""

from pathlib import Path
from typing import Any

from bench import report
from bench.plots import COLORS
from bench.report import BENCH, RESULTS, Result, Suite, text

from . import run

NAME = run.NAME
FRONT = BENCH.parent / "README.md"
COLUMNS = {
    "a million rows in one call": run.LARGE,
    "memory for it, at most": run.LARGE_PEAK,
    "small upserts": run.SMALL_RATE,
}
"""Heading -> case."""
OURS, OTHERS = COLORS[0], "#a9b4ba"


def draw(suite: Suite) -> Path:
    """Draw the three figures side by side into bench/results and return the file."""
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("Agg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    cases = suite.cases()
    names = suite.subjects
    figure, panels = pyplot.subplots(1, len(COLUMNS), figsize=(12, 0.8 + 0.3 * len(names)), sharey=True)
    for panel, (heading, case) in zip(panels, COLUMNS.items(), strict=True):
        _panel(panel, heading, [cases[case].get(name) for name in names], names)
    figure.tight_layout()
    file = RESULTS / f"{suite.name}.png"
    figure.savefig(file, dpi=110, metadata={"Software": ""})
    pyplot.close(figure)
    return file


def _panel(panel: Any, heading: str, results: list[Result | None], names: list[str]) -> None:
    is_rate = any(each.unit == "per s" for each in results if each)
    medians = [each.median if each and each.median else None for each in results]
    drawn = [value for value in medians if value]
    low, high = min(drawn) / 2, max(drawn)
    colors = [OURS if name.startswith("Nyala") else OTHERS for name in names]
    bars = panel.barh(names, [(value or low) - low for value in medians], left=low, color=colors)
    labels = [_cell(each) for each in results]
    panel.bar_label(bars, labels, padding=4, fontsize=8)
    panel.set_xscale("log")
    panel.set_xlim(low, high * (high / low) ** 0.35)
    panel.set_title(f"{heading} ({'more' if is_rate else 'less'} is better; log scale)", fontsize=9, loc="left")
    panel.set_xticks([])
    panel.minorticks_off()
    panel.tick_params(axis="y", labelsize=8, length=0)
    panel.spines[["top", "right", "bottom"]].set_visible(False)
    if not panel.yaxis_inverted():
        panel.invert_yaxis()


def front(suite: Suite) -> str:
    """Return the short table: time, memory and rate of each subject, and what it lost or doubled."""
    cases = suite.cases()
    lines = [f"|  | {' | '.join(COLUMNS)} | lost, doubled rows |", f"| --- |{' ---: |' * (len(COLUMNS) + 1)}"]
    for name in suite.subjects:
        cells = [_cell(cases.get(case, {}).get(name)) for case in COLUMNS.values()]
        lines.append(f"| {name} | {' | '.join(cells)} | {_wrong(cases, name)} |")
    return "\n".join(lines)


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    return text(result) if result.median else "none in time"


def _wrong(cases: dict[str, dict[str, Result]], name: str) -> str:
    """Return the rows lost and doubled at the end, or after the large upsert for a subject without small ones."""
    counts = []
    for kind in (run.LOST, run.DOUBLED):
        rows = [cases.get(case.format(kind), {}).get(name) for case in (run.AFTER_SMALL, run.AFTER_LARGE)]
        counts.append(next(f"{max(each.samples):,.0f}" for each in rows if each))
    return ", ".join(counts)


def publish(suite: Suite) -> None:
    """Draw the picture, and put the tables into both READMEs."""
    picture = draw(suite)
    report.write_section(suite.name, f"{report.markdown(suite)}\n\n![{suite.name}](results/{picture.name})")
    report.write_section(suite.name, f"{front(suite)}\n\n![{suite.name}](bench/results/{picture.name})", FRONT)
