"""A process that takes the steps of a story in a store of its own, to be killed.

    python tests/campaigns/nested/killed_process.py DIRECTORY STORY [--early]

It prints a line for each step that is acknowledged. STORY is a pickle of `lives.Step`. With ``--early`` a step is
acknowledged before it is taken, which is a mistake that the campaign must find.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala


def main() -> None:
    """Take all steps, and wait for the end."""
    with nyala.open(sys.argv[1], maintenance="off") as database:
        is_early = "--early" in sys.argv
        for step in pickle.loads(Path(sys.argv[2]).read_bytes()):
            if is_early:
                os.write(1, b"acknowledged\n")
                time.sleep(0.2)
            step.take(database)
            if not is_early:
                os.write(1, b"acknowledged\n")
        time.sleep(600)


if __name__ == "__main__":
    main()
