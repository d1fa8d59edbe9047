"""Describes a repair as text, for `nyala verify`, which shows what is possible, and `nyala repair`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ...engine.recovery.repair import LogRepair, RepairReport, RowsetRepair
from ...schemas.cells.timestamp import datetime_of

TITLES = ("table", "tablet", "rowset", "action", "rows kept", "from backup", "rows lost", "what is lost")


def row(repair: RowsetRepair) -> tuple[object, ...]:
    """Return the row of a rowset in the table that ``nyala repair`` prints, with ``TITLES``."""
    floor = repair.history_floor
    lost = [
        *repair.changes_lost,
        *(f"{count:,} cells of {name} (now NULL)" for name, count in repair.cells_lost.items()),
        *(f"rows with keys {keys}" for keys in repair.keys_lost),
        *([_since(repair)] if repair.backup else []),
        "history before the repair" if floor is None else f"history before {floor}",
    ]
    mended = [f"{count:,} cells of {name}" for name, count in repair.cells_from_backup.items()]
    taken = [f"{repair.rows_from_backup:,} rows"] if repair.rows_from_backup or repair.backup else []
    rows_lost = "all" if repair.rows_lost is None else repair.rows_lost
    if repair.rows_lost is None and repair.backup:
        rows_lost = "not known"
    where = repair.table, repair.tablet, repair.rowset
    return (*where, repair.action, repair.rows_kept, ", ".join([*taken, *mended]), rows_lost, "; ".join(lost))


def _since(repair: RowsetRepair) -> str:
    return f"all later changes and deletes of rows taken from {repair.backup}"


def _of_log(log: LogRepair) -> Iterator[str]:
    yield from (f"damaged: {line}" for line in log.damaged)
    if not log.records_kept and not log.records_lost:
        return
    yield (
        f"the log: {log.records_kept:,} records can be read and are kept, {log.records_after:,} of them (with "
        f"{log.rows_after:,} rows) after the damage; {log.records_lost:,} records are lost, with all rows in them"
    )
    if log.records_lost and log.tablets:
        yield f"tablets that may have lost rows (all others are complete in files): {', '.join(log.tablets)}"
    elif log.records_lost:
        yield "no row is lost: files hold everything in the lost records"
    yield from (f"moved to damaged/, because no table refers to it: {path}" for path in log.set_aside)


def lines(report: RepairReport, directory: str, from_backup: str | None) -> Iterator[str]:
    """Yield the lines that ``nyala repair`` prints below its table."""
    where = shlex.quote(directory)
    if report.manifest:
        yield f"damaged: {report.manifest}; it is restored from its copy, and nothing is lost"
    if report.log:
        yield from _of_log(report.log)
    for repair in report.repairs:
        yield from (f"damaged: {line}" for line in repair.damaged)
    yield from report.advice
    if report.log_reaches_back_to is not None:
        moment = datetime_of(report.log_reaches_back_to).isoformat(timespec="seconds")
        yield f"writes since {moment}, except direct loads, are in the log: they are replayed at the next start"
    if not report.is_needed:
        yield "nothing to repair; `nyala verify` checks everything else"
        return
    if from_backup is None and any(repair.history_floor is None for repair in report.repairs) and not report.is_applied:
        yield f"if there is a backup, recover lost rows from it: nyala repair {where} --from-backup FOLDER"
    if report.is_applied:
        yield f"repaired; the old files are in {report.kept_in}/; delete them when you no longer need them"
        return
    source = f" --from-backup {shlex.quote(from_backup)}" if from_backup else ""
    yield f"nothing was changed; to repair: nyala repair {where}{source} --apply (keeps the old files under damaged/)"
