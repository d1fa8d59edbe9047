"""Show what the fourteen operations cost beside the recorded limits, and record the new costs:  make counters"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns.counters.counting import COUNTERS
from tests.campaigns.counters.operations import costs

LIMITS = Path(__file__).with_name("limits.json")


def main() -> None:
    """See the module."""
    known = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    found = costs()
    table = Table("operation", "costs", "recorded before, where it differs")
    for operation, cost in found.items():
        before = known.get(operation, {})
        differing = {counter: before.get(counter, 0) for counter in COUNTERS if before.get(counter) != cost[counter]}
        table.add_row(operation, _shown(cost), _shown(differing))
    Console().print(table)
    LIMITS.write_text(json.dumps(found, indent=2) + "\n")


def _shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {counter}" for counter, count in counts.items() if count)


if __name__ == "__main__":
    main()
