"""A workload beside those of `workloads`: a table takes longer cells for a while."""

from __future__ import annotations

from nyala.schemas.table.alter import SetOption
from tests.campaigns.crash.workloads import WORKLOADS, Run, row


def long_cells(run: Run) -> None:
    """Cells beyond the usual limit in new rows, changes, flushes and compactions; they stay when the limit falls."""
    run.start()
    _limit(run, 100_000)
    run.write("insert", [{**row(0, 0), "text": "x" * 100_000}, row(2, 0)])
    run.maintain("flush")
    run.write("update", [{"id": 2, "text": "y" * 65_537}, {"id": 0, "text": "z" * 99_999}])
    run.write("insert", [{**row(1, 1), "text": "w" * 70_000}])
    run.restart()
    run.maintain("flush")
    run.maintain("flush_deltas")
    run.maintain("major_compact")
    run.write("update", [{"id": 1, "text": "v" * 80_000}])
    _limit(run, None)
    run.restart()
    run.maintain("flush_deltas")
    run.maintain("compact")
    run.write("upsert", [row(0, 2), row(3, 2)])


def _limit(run: Run, most: int | None) -> None:
    run.alter([SetOption(option="cell_bytes_max", value=most)], ())


ALL_WORKLOADS = {**WORKLOADS, long_cells.__name__: long_cells}
