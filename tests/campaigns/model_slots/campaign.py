"""Explore larger sizes of the models, to the end: ``campaign.py --sizes study``. Exit code 1 after a violation.

At the sizes of moves each mistake of ``moves.py`` is planted, too: exit code 1 if one is not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns.model_slots.explore import explore
from tests.campaigns.model_slots.moves import MoveBug, Moves, MoveSize
from tests.campaigns.model_slots.protocol import Protocol
from tests.campaigns.model_slots.sizes import SIZES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", choices=SIZES, default="study")
    parser.add_argument("--only", help="one of the sizes, by its name")
    parser.add_argument("--states", type=int, default=50_000_000, help="the most states of a size")
    options = parser.parse_args()
    has_failed = False
    for name, size in SIZES[options.sizes].items():
        if options.only not in (None, name):
            continue
        start = time.process_time()
        model = Moves(size) if isinstance(size, MoveSize) else Protocol(size)
        result = explore(model, options.states)
        seconds = time.process_time() - start
        end = "complete" if result.is_complete else "not to the end"
        print(
            f"{name}: {result.violation or 'no violation'}; {result.states:,} states, {end}, {seconds:.0f} s",
            flush=True,
        )
        print("".join(f"  {step}\n" for step in result.path), end="")
        has_failed |= bool(result.violation)
        if isinstance(size, MoveSize):
            missed = [bug.value for bug in MoveBug if not explore(Moves(size, bug), options.states).violation]
            print(f"  planted mistakes that are not found: {', '.join(missed) or 'none'}", flush=True)
            has_failed |= bool(missed)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
