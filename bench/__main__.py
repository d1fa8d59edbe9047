"""Measure, and write what was found into bench/README.md:  python -m bench [SUITE ...] [--rows N] [--rounds N]"""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import plots, report
from bench.report import RESULTS, Suite
from bench.upserts import page

WORK = Path(__file__).parent / "scratch"
ENGINE_SUITES = (
    "growth",
    "pushdown",
    "density",
    "ordered",
    "cores",
    "compaction",
    "outside",
    "read_only",
    "time_travel",
    "locks",
    "lookups",
    "tablets",
    "callers",
    "small_writes",
    "replay",
    "mirror",
    "encryption",
    "security",
    "start",
    "bucket",
    "bucket_requests",
)
SUITES = (
    "micro",
    "engine",
    "compare",
    "tuned",
    "lineitem",
    "ycsb",
    "service",
    "upserts",
    "spark",
    "tpch",
    "sql",
    *ENGINE_SUITES,
)


def main() -> None:
    """Run the suites asked for, all by default; ``report`` only renders the stored results again."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known = f"{', '.join(SUITES)}; or report; default: all"
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=known)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table (default: 10 million)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the figures are medians (default: 3)")
    given = parser.parse_args()
    if unknown := set(given.suites) - {*SUITES, "report"}:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    console = Console()
    for name in [name for name in given.suites or SUITES if name != "report"]:
        console.rule(name)
        measure(name, given.rows, given.rounds, console)
    for file in sorted(RESULTS.glob("*.json")):
        publish(Suite.load(file), console)


def measure(name: str, rows: int, rounds: int, console: Console) -> None:
    """Run one suite; each ends as a JSON file in bench/results."""
    if name == "micro":
        subprocess.run([sys.executable, "-m", "bench.micro"], check=True, cwd=Path(__file__).parent.parent)
    else:
        runner(name)(rows, rounds, WORK / name, console).save()


def runner(name: str) -> Callable[[int, int, Path, Console], Suite]:
    """Import a suite only when it runs: comparisons need their peers installed, Spark needs Java."""
    if name in ENGINE_SUITES:
        return importlib.import_module(f"bench.engine.{name}").run
    if name in ("lineitem", "tuned"):
        return getattr(importlib.import_module("bench.compare.run"), f"run_{name}")
    if name == "tpch":
        return importlib.import_module("bench.spark.tpch").run
    return importlib.import_module(f"bench.{name}.run").run


def publish(suite: Suite, console: Console) -> None:
    """Show a suite, draw it, and put its table into the README."""
    report.print_suite(suite, console)
    if suite.name == page.NAME:
        page.publish(suite)
        return
    picture = plots.draw(suite)
    report.write_section(suite.name, f"{report.markdown(suite)}\n\n![{suite.name}](results/{picture.name})")


if __name__ == "__main__":
    main()
