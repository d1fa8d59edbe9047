"""Prints a verification of a store, for `nyala verify` of directories and of buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ...engine.recovery.verify import VerifyReport


def print_report(report: VerifyReport, what_to_do: str) -> None:
    """Print the counts of a verification, and its findings with what can be done about them."""
    counts = f"{report.files:,} files, {report.bytes:,} bytes, {report.rows:,} rows, {report.log_records:,} log records"
    typer.echo(f"checked {counts}")
    for note in report.notes:
        typer.echo(f"note: {note}")
    for problem in report.problems:
        typer.secho(problem, fg=typer.colors.RED)
    count = len(report.problems)
    summary = f"{count:,} problem{'s' * (count != 1)} found; {what_to_do}"
    typer.echo("no problems found" if report.is_sound else summary)
