"""``nyala job``: jobs on whole tables, run by threads of this process or by Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from ..executors.progress import cut_note
from .job_options import JobOptions
from .load import load
from .options import AsJson, AsOf, moment
from .run import FINDINGS
from .target import Json, Name, database, takes_target

if TYPE_CHECKING:
    from ..api.database import Database

app = typer.Typer(no_args_is_help=True, help="Verify, back up, restore, load, compact, copy and export whole tables.")
app.command("load")(load)

Root = Annotated[str, typer.Argument(help="A folder, or a URI such as s3://bucket/backups.")]
OtherUrl = Annotated[str | None, typer.Option("--other-url", help="The URL of the other store's server.")]
OtherData = Annotated[str | None, typer.Option("--other-data", help="The other store's data directory, or bucket.")]
OtherName = Annotated[str | None, typer.Option("--other-name", help="The other store's name in its bucket.")]


@app.command("checksum")
@takes_target()
def checksum_command(
    job: JobOptions,
    name: Name,
    as_of: AsOf = None,
) -> None:
    """Print a checksum of a table's rows, by tablet; it does not depend on how the rows are stored."""
    from ..jobs.backup.verify_job import checksum
    from .output import print_table

    with job.database() as db:
        found = checksum(db, name, as_of=moment(as_of), **job.running)
    if job.prints_json(found):
        return
    rows = [(each.tablet, f"{each.rows:,}", each.checksum) for each in found.tablets]
    print_table(["tablet", "rows", "checksum"], [*rows, ("all", f"{found.rows:,}", found.checksum)])


@app.command("verify")
@takes_target()
def verify_command(
    job: JobOptions,
    name: Name,
    other_url: OtherUrl = None,
    other_data: OtherData = None,
    other_name: OtherName = None,
    other_table: Annotated[
        str | None, typer.Option(help="The table's name in the other store.", show_default="the same")
    ] = None,
    as_of: AsOf = None,
    other_as_of: AsOf = None,
    differences: Annotated[int, typer.Option(min=1, help="Print at most this many differing keys.")] = 100,
) -> None:
    """Compare two tables, in one store or two; exit with 1 if they differ."""
    from ..jobs.backup.verify_job import verify

    with job.database() as db, other_database(job.context, db, other_url, other_data, other_name) as other:
        found = verify(
            db,
            other,
            name,
            right_table=other_table,
            as_of=moment(as_of),
            right_as_of=moment(other_as_of),
            differences=differences,
            **job.running,
        )
    if not job.prints_json(found):
        _print_verification(found)
    if not found.equal:
        raise typer.Exit(FINDINGS)


def _print_verification(found: Any) -> None:
    from .output import print_table

    if found.equal:
        typer.echo(f"equal: {counted(found.left.rows, 'row')}, checksum {found.left.checksum}")
        return
    typer.echo(f"they differ: {found.left.rows:,} rows on the left, {found.right.rows:,} on the right")
    for line in found.columns:
        typer.echo(line)
    if found.tablets:
        typer.echo(f"tablets on the left with differences: {', '.join(map(str, found.tablets))}")
    if found.differences:
        names = list(found.differences[0].key)
        caption = "" if found.complete else "more rows differ"
        print_table([*names, "what"], [[*each.key.values(), each.what] for each in found.differences], caption)


@app.command("backup")
@takes_target()
def backup_command(
    job: JobOptions,
    name: Name,
    root: Root,
    force_full: Annotated[
        bool, typer.Option("--force-full", help="Back up all rows, not only the changes since the last backup.")
    ] = False,
    with_checksum: Annotated[
        bool | None,
        typer.Option(
            "--checksum/--no-checksum",
            help="Check the checksum with a scan of the table, or store none.",
            show_default="computed from the rows read",
        ),
    ] = None,
    as_of: AsOf = None,
) -> None:
    """Back up a table: in full the first time, then only changes. Resumes an interrupted run."""
    from ..jobs.backup.backup_job import backup

    with job.database() as db:
        made = backup(
            db,
            name,
            root,
            force_full=force_full,
            as_of=moment(as_of),
            checksum=with_checksum,
            **job.running,
        )
    if not job.prints_json(made):
        typer.echo(
            f"{made.kind} backup of {name} up to {made.until}: {counted(made.rows, 'row')}, {made.bytes:,} bytes"
        )
        typer.echo(f"in {counted(made.files, 'file')} in {made.folder}")
        if made.why_full:
            typer.echo(f"It is a full backup: {made.why_full}.")


@app.command("restore")
@takes_target()
def restore_command(
    job: JobOptions,
    name: Name,
    root: Root,
    at: Annotated[
        str | None, typer.Option(help="Restore the newest backup that ended by this time.", show_default="the newest")
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--as", help="The restored table's name.", show_default="as it was")
    ] = None,
    check: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify the checksum of the restored rows.")
    ] = True,
) -> None:
    """Restore a table from its backups. Resumes an interrupted run."""
    from ..jobs.backup.chain import chain_of
    from ..jobs.backup.restore_job import restore

    until = moment(at)
    chain_of(root, name, until)  # or there is none: then make no store
    with job.database(create=True) as db:
        made = restore(
            db,
            root,
            name,
            name=new_name,
            at=until,
            verify=check,
            **job.running,
        )
    if not job.prints_json(made):
        checked = ", its checksum verified" if made.verified else ""
        typer.echo(f"restored {made.table} as of {made.until} from {counted(made.backups, 'backup')}{checked}")


@app.command("backups")
def backups_command(root: Root, json_output: Json = False) -> None:
    """List the backups in a folder."""
    from ..jobs.backup.chain import list_backups
    from .output import print_json, print_table

    found = list_backups(root)
    if json_output:
        print_json([each.model_dump(mode="json", exclude={"parts"}) for each in found])
        return
    rows = [
        (each.table.name, each.kind, each.moment, f"{each.rows:,}", f"{each.bytes:,}", str(len(each.parts)))
        for each in found
    ]
    print_table(["table", "kind", "up to", "rows", "bytes", "files"], rows)


@app.command("copy")
@takes_target()
def copy_command(
    job: JobOptions,
    name: Name,
    other_url: OtherUrl = None,
    other_data: OtherData = None,
    other_name: OtherName = None,
    new_name: Annotated[
        str | None, typer.Option("--as", help="The copy's name in the other store.", show_default="the same")
    ] = None,
    as_of: AsOf = None,
) -> None:
    """Copy a table to another store. Resumes an interrupted run."""
    from ..jobs.copy_job import copy_table

    with job.database() as db:
        db.table(name)  # or there is none: then make no store
        with other_database(job.context, db, other_url, other_data, other_name, create=True) as other:
            made = copy_table(db, other, name, name=new_name, as_of=moment(as_of), **job.running)
    if not job.prints_json(made):
        typer.echo(f"copied {name} as of {made.snapshot} to {made.table}: {counted(made.rows, 'row')}")


@app.command("copy-store")
@takes_target("executor")
def copy_store_command(
    job: JobOptions,
    bucket: Annotated[str, typer.Argument(metavar="URL", help="The bucket to copy to, such as s3://bucket/root.")],
    new_name: Annotated[str, typer.Option("--as", help="The copy's name in that bucket.")],
    source_url: Annotated[
        str | None, typer.Option(help="The source's bucket as this machine reaches it.", show_default="the server's")
    ] = None,
) -> None:
    """Copy a store in a bucket, while it is in use; a later run copies only what is new. The copy can be opened as a
    store."""
    from ..jobs.copy_store_job import copy_store

    with job.database() as db:
        made = copy_store(db, bucket, new_name, source_url=source_url, workers=job.workers, show="lines")
    if not job.prints_json(made):
        typer.echo(f"{made.name} in {made.url} has the store as of {made.timestamp}")
        new = f"{counted(made.files_copied, 'file')} of {made.bytes_copied:,} bytes copied"
        typer.echo(f"{new}, {counted(made.objects_deleted, 'object')} of an earlier copy deleted")


@app.command("export")
@takes_target()
def export_command(
    job: JobOptions,
    name: Name,
    folder: Annotated[str, typer.Argument(help="An empty folder, or a URI such as s3://bucket/homes.")],
    columns: Annotated[str | None, typer.Option(help="Comma-separated column names.")] = None,
    where: Annotated[str | None, typer.Option(help="An SQL condition.")] = None,
    as_of: AsOf = None,
) -> None:
    """Export rows to a folder of Parquet files. Resumes an interrupted run."""
    from ..jobs.backup.export_job import export

    chosen = [each.strip() for each in columns.split(",")] if columns else None
    with job.database() as db:
        made = export(
            db,
            name,
            folder,
            columns=chosen,
            where=where,
            as_of=moment(as_of),
            **job.running,
        )
    if not job.prints_json(made):
        files = counted(len(made.parts), "file")
        typer.echo(f"wrote {counted(made.rows, 'row')} as of {made.snapshot} in {files} to {made.folder}")


@app.command("import")
@takes_target("workers")
def import_command(
    job: JobOptions,
    name: Name,
    sources: Annotated[list[Path], typer.Argument(help="Parquet files or directories of Parquet files.")],
    directory: Annotated[
        Path | None, typer.Option(help="The store's directory as executors see it; not with --import-storage.")
    ] = None,
    mode: Annotated[str, typer.Option(help="insert_only, or upsert to change existing rows.")] = "insert_only",
) -> None:
    """Import Parquet files in one commit: executors build the table's files directly (docs/bulk.md)."""
    with job.database() as db:
        result = db.table(name).bulk_import(sources, directory=directory, mode=mode, executor=job.executor)
    if not job.prints_json(result):
        rows = counted(result.rows, "row")
        typer.echo(f"imported {rows} at {result.timestamp}{cut_note(result.truncated)}")


@app.command("compact")
@takes_target()
def compact_command(
    job: JobOptions,
    name: Name,
    directory: Annotated[
        Path | None, typer.Option(help="The store's directory as executors see it.", show_default="that of --data")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a run that was killed.")] = False,
) -> None:
    """Merge a table's rowsets outside the server (docs/bulk.md). Run again if some tasks fail (exit code 1)."""
    with job.database() as db:
        table = db.table(name)
        made = table.bulk_compact(directory=directory, replace=replace, **job.running)
    if not job.prints_json(made):
        for line in made.conflicts:
            typer.secho(line, fg=typer.colors.RED, err=True)
        into = f"{counted(made.rowsets_before, 'rowset')} into {made.rowsets}, {counted(made.rows, 'row')}"
        typer.echo(f"merged {into} in {counted(made.tasks - len(made.conflicts), 'task')}")
    if made.conflicts:
        raise typer.Exit(FINDINGS)


@app.command("apply")
@takes_target("executor", "workers")
def apply_command(
    job: JobOptions,
    name: Name,
    files: Annotated[list[str], typer.Argument(help="Files and folders of changes, in order.")],
    op_column: Annotated[str, typer.Option(help="The column with the operation of each change.")] = "_op",
    order_by: Annotated[str | None, typer.Option(help="Order the changes of a file by this column.")] = None,
    batch_rows: Annotated[int, typer.Option(min=1, help="Changes per commit.")] = 250_000,
    run: Annotated[str, typer.Option(help="A name of this run; a new name applies unchanged files again.")] = "",
    as_json: AsJson = False,
) -> None:
    """Apply files of changes, keeping the last of each key. A second run skips commits already applied."""
    from ..jobs.files.apply_job import apply_changes
    from ..jobs.files.file_format import ReadOptions

    how = {"op_column": op_column, "order_by": order_by, "batch_rows": batch_rows, "run": run}
    with job.database() as db:
        made = apply_changes(db, name, files, **how, options=ReadOptions(as_json=as_json), show="lines")
    if not job.prints_json(made):
        parts = f"{counted(made.applied, 'key')} in {counted(made.commits, 'commit')}, {made.skipped} already applied"
        what = f"{counted(made.changes, 'change')} of {counted(made.files, 'file')}"
        typer.echo(f"applied {what}: {parts}{cut_note(made.truncated)}")


def other_database(
    context: typer.Context,
    db: Database,
    url: str | None,
    data: str | None,
    name: str | None,
    create: bool = False,
) -> AbstractContextManager[Database]:
    """Return the second database that the options of a command name; the first one if no other is named.

    Raises:
        StoreError: both options are given, or the database cannot be opened.
    """
    if url is None and data is None:
        return nullcontext(db)
    if url is not None and data is not None:
        raise InvalidArgumentError("give --other-url or --other-data, not both")
    return database(context, url, data, name, create)
