"""Every fault at every call of every workload over a bucket, in an order drawn from a seed, until the time is up:

    python tests/engine/home/bucket_faults_campaign.py --minutes 30 --seed 0

A failure ends the run with the call that had the fault. Exit code 0: nothing failed.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.engine.home.bucket_faults import KINDS, trial
from tests.engine.home.bucket_workloads import WORKLOADS, calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    trials = [(name, kind, number) for name in WORKLOADS for kind in KINDS for number in range(1, calls(name) + 1)]
    random.Random(options.seed).shuffle(trials)
    print(f"{len(trials):,} trials, seed {options.seed}", flush=True)
    until, done = time.monotonic() + 60 * options.minutes, 0
    for workload, kind, number in trials:
        if time.monotonic() > until:
            break
        try:
            trial(workload, kind, number)
        except BaseException:
            print(f"failed: trial({workload!r}, {kind!r}, {number})", flush=True)
            raise
        done += 1
    print(f"{done:,} of {len(trials):,} trials: nothing lost, nothing left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
