"""Prints a verification of a store, for `nyala verify` of directories and of buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ...schemas.phrases import counted

if TYPE_CHECKING:
    from ...engine.recovery.verify import VerifyReport


def print_report(report: VerifyReport, what_to_do: str) -> None:
    """Print the counts of a verification by the command ``nyala verify``, and its findings with what can be done about
    them."""
    files = f"{counted(report.files, 'file')}, {counted(report.bytes, 'byte')}"
    rows = f"{counted(report.rows, 'row')} in column files"
    records = f"{counted(report.log_records, 'log record')} (with the rows that are not in column files yet)"
    typer.echo(f"checked {files}, {rows}, {records}" if report.log_records else f"checked {files}, {rows}")
    for note in report.notes:
        typer.echo(f"note: {note}")
    for problem in report.problems:
        typer.secho(problem, fg=typer.colors.RED)
    count = len(report.problems)
    summary = f"{count:,} problem{'s' * (count != 1)} found; {what_to_do}"
    typer.echo("no problems found" if report.is_sound else summary)
