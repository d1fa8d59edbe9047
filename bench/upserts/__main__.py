"""The suite with all its sizes:  python -m bench.upserts --rows 1000000 --changes 100000 --small 1000 --processes 8"""

import argparse

from rich.console import Console

from bench.__main__ import WORK, publish
from bench.report import Suite

from .processes import Limits
from .rows import Sizes
from .run import NAME, PROCESSES, SMALL, measure, rehearse
from .servers import SUBJECTS


def main() -> None:
    """Measure, and write the figures into bench/README.md and README.md."""
    parser = argparse.ArgumentParser(prog="python -m bench.upserts", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows to begin with (default: 10 million)")
    parser.add_argument("--changes", type=int, default=1_000_000, help="rows of the large upsert (default: a million)")
    parser.add_argument("--small", type=int, default=SMALL, help="small upserts in all (default: 1,000)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="processes that make them (default: 8)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds; the figures are medians (default: 1)")
    parser.add_argument("--minutes", type=float, default=30, help="of the large upsert, at most (default: 30)")
    parser.add_argument("--small-minutes", type=float, default=5, help="of the small upserts, at most (default: 5)")
    parser.add_argument("--subjects", nargs="*", choices=SUBJECTS, help="only these; figures of the others stay")
    parser.add_argument("--dry", action="store_true", help="show the figures, and write them nowhere")
    given = parser.parse_args()
    console = Console()
    limits = Limits(given.minutes * 60, given.small_minutes * 60)
    sizes = Sizes(given.rows, given.changes, given.small, given.processes)
    if given.subjects is None or any(name.startswith("Nyala") for name in given.subjects):
        rehearse(WORK / NAME)
    keep = (lambda suite: None) if given.dry else Suite.save
    suite = measure(sizes, limits, given.rounds, WORK / NAME, console, given.subjects, keep)
    if not given.dry:
        publish(suite, console)


if __name__ == "__main__":
    main()
