"""The long crash campaign: the fixed workloads with many images and each call failing in turn, then random workloads
for some minutes. After a failure it goes on with the next workload; the last line names all that failed.

python tests/campaigns/crash/campaign.py --minutes 60 --seed 0 --images 100
python tests/campaigns/crash/campaign.py --faults-only
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns import options as drawn
from tests.campaigns.crash.faults import RULES, fail_each_call
from tests.campaigns.crash.images import campaign
from tests.campaigns.crash.long_cells import ALL_WORKLOADS
from tests.campaigns.crash.workloads import Run, row

FEATURES = drawn.Features(drawn.FEW_ROWS, without={"flush_bytes", "scan_threads", "load_threads"})
"""Every second reopening sets ``flush_bytes``; with one thread the same call comes n-th every time."""


def random_workload(seed: int) -> Callable[[Run], None]:
    """Return a workload of some twelve steps drawn by ``seed``: batches that must succeed, upkeep, restarts."""

    def workload(run: Run) -> None:
        random = Random(seed)
        run.start()
        for batch in range(12):
            live = [key for (key,) in run.oracle.now()]
            keys = random.sample(range(8), random.randint(1, 4))
            rewrite = random.choice(["minor_compact", "major_compact", "compact"])
            kind = random.choice(["upsert", "upsert", "update", "delete", "flush", "flush_deltas", rewrite, "restart"])
            if kind == "upsert":
                run.write(kind, [row(key, batch, text="x" * random.choice([0, 5, 900])) for key in keys])
            elif kind == "restart":
                run.restart()
            elif kind == rewrite or kind.startswith("flush"):
                run.maintain(kind)
            elif chosen := [key for key in keys if key in live]:
                run.write(kind, [{"id": key} | ({"batch": batch} if kind == "update" else {}) for key in chosen])

    return workload


@contextmanager
def _noted(failed: list[str], name: str) -> Iterator[None]:
    """Print how the work inside fails, and add its name to ``failed``."""
    try:
        yield
    except Exception:  # whatever it is, the workloads behind it are to be seen, too
        traceback.print_exc()
        failed.append(name)


def main() -> int:
    """Run all; return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="of random workloads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--faults-only", action="store_true", help="of the fixed workloads, and no power failures")
    drawn.add_to(parser)
    options = parser.parse_args()
    swarm = drawn.swarm_of(FEATURES, options)
    logging.disable(logging.CRITICAL if options.faults_only else logging.WARNING)
    failed: list[str] = []
    for number, (name, workload) in enumerate(ALL_WORKLOADS.items()):
        with _noted(failed, name), swarm.round(-1 - number):
            if not options.faults_only:
                print(f"{name}, seed {options.seed}:", campaign(workload, options.images, options.seed), flush=True)
            for kind in RULES:
                print(f"{name}, {kind}: {fail_each_call(kind, workload)} calls failed in turn", flush=True)
    seed, deadline = options.seed, time.monotonic() + 60 * options.minutes
    while not options.faults_only and time.monotonic() < deadline:
        with _noted(failed, f"seed {seed}"), swarm.round(seed):
            print(f"random workload {seed}:", campaign(random_workload(seed), options.images // 2, seed), flush=True)
        seed += 1
    print(f"failed: {', '.join(failed) or 'nothing'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
