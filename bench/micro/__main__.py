"""Measure codecs and kernels, show a table, keep all samples in bench/results/micro.json."""

import argparse
from collections.abc import Iterator

from rich.console import Console

from bench.micro import bitshuffle_cases, encoding_cases, lz4_cases
from bench.micro.case import NYALA, Case
from bench.report import Result, Suite, print_suite

ROUNDS = 31


def all_cases() -> Iterator[Case]:
    """Yield the cases in the order of the table; each is built when it is its turn."""
    yield from bitshuffle_cases.cases()
    yield from lz4_cases.cases()
    yield from encoding_cases.run_length_cases()
    yield from encoding_cases.dictionary_cases()
    yield from encoding_cases.prefix_cases()
    yield from encoding_cases.page_cases()


def main() -> None:
    """Run everything. How fast it was does not change the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of every case (default: {ROUNDS})")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose name contains this")
    given = parser.parse_args()
    console = Console()
    results: list[Result] = []
    for case in all_cases():
        if given.only in case.name:
            measured = case.measure(given.rounds)
            results += measured
            console.print(f"  {case.name}: {_beside_the_best(measured)}")
    suite = Suite("micro", {"rounds": given.rounds}, results)
    print_suite(suite, console)
    if not given.only:
        suite.save()


def _beside_the_best(results: list[Result]) -> str:
    """Return our figure as a multiple of the best peer's."""
    ours = next(result.median for result in results if result.subject == NYALA)
    best = max(result.median for result in results if result.subject != NYALA)
    return f"{ours / best:.2f} x the best peer"


if __name__ == "__main__":
    main()
