"""Random operations against the model until the time is up; the seed of each round is printed before it runs.

    python tests/campaigns/model/fuzz.py --minutes 30 --seed 0
    python tests/campaigns/model/fuzz.py --minutes 1 --seed 7 --options 'flush_bytes=400 encryption=on'

Each round also alters a table at random, beside its mirror, and works on tables of several pages (`stretches`). A
failure ends the run with the sequence, shrunk, as a test to paste into test_pinned.py, or with what was done to the
other tables.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.campaigns import options as drawn
from tests.campaigns.model.altering import OPTIONS, UNUSUAL, Altering
from tests.campaigns.model.machine import machine_of
from tests.campaigns.model.shapes import (
    ALL_TYPES,
    EXPIRING,
    EXPIRING_KEY,
    EXPIRING_ORDERED,
    EXPIRING_SHORT_HISTORY,
    IMMUTABLE,
    LONG_CELLS,
    LONG_CELLS_IN_WHOLE_ROWS,
    NO_INDEX,
    ORDERED,
    ORDERED_BY_TEXT,
    ORDERED_IMMUTABLE,
    PARTITIONED,
    SHORT_HISTORY,
    SMALL_INDEX,
    STRING_KEY,
    STRING_KEY_NO_INDEX,
    U64,
)
from tests.campaigns.model.stretches import Stretches
from tests.campaigns.model.subjects import BucketSubject, DirectSubject, EmbeddedSubject

FEATURES = drawn.Features(drawn.FEW_ROWS, allowed={"home"})
_EXAMPLES = 30
_STRETCHES = 10
_CASES = (
    (U64, EmbeddedSubject),
    (ALL_TYPES, EmbeddedSubject),
    (SHORT_HISTORY, EmbeddedSubject),
    (STRING_KEY, DirectSubject),
    (IMMUTABLE, EmbeddedSubject),
    (PARTITIONED, EmbeddedSubject),
    (SHORT_HISTORY, DirectSubject),
    (SMALL_INDEX, EmbeddedSubject),
    (STRING_KEY_NO_INDEX, EmbeddedSubject),
    (PARTITIONED, DirectSubject),
    (NO_INDEX, DirectSubject),
    (ORDERED, EmbeddedSubject),
    (ORDERED_BY_TEXT, DirectSubject),
    (ORDERED_IMMUTABLE, EmbeddedSubject),
    (EXPIRING, EmbeddedSubject),
    (EXPIRING_SHORT_HISTORY, DirectSubject),
    (EXPIRING_ORDERED, EmbeddedSubject),
    (EXPIRING_KEY, EmbeddedSubject),
    (LONG_CELLS, EmbeddedSubject),
    (LONG_CELLS_IN_WHOLE_ROWS, DirectSubject),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    drawn.add_to(parser)
    options = parser.parse_args()
    logging.disable(logging.ERROR)  # a store in a bucket that is killed says so
    rounds = settings(
        max_examples=_EXAMPLES,
        stateful_step_count=options.steps,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    swarm = drawn.swarm_of(FEATURES, options)
    deadline = time.monotonic() + 60 * options.minutes
    number = options.seed
    while time.monotonic() < deadline:
        print(f"seed {number}: {_EXAMPLES} sequences of {options.steps} steps", flush=True)
        with swarm.round(number):
            _one_round(number, options.steps, rounds)
        number += 1
    print(f"all agree; continue with --seed {number}")


def _one_round(number: int, steps: int, rounds: settings) -> None:
    shape, subject = _CASES[number % len(_CASES)]
    place = BucketSubject if drawn.current().is_in_bucket else subject
    run_state_machine_as_test(seed(number)(machine_of(shape, place)), settings=rounds)
    altered_in = UNUSUAL if subject is DirectSubject else OPTIONS
    Altering(number, history_seconds=shape.history_seconds, options=altered_in).run(steps)
    for stretch in range(_STRETCHES):
        Stretches(number * _STRETCHES + stretch).run(steps // 4)


if __name__ == "__main__":
    main()
