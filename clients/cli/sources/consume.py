"""``nyala consume``: applies topics of Kafka to tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ....schemas.errors import InvalidArgumentError
from ....schemas.phrases import counted
from ..options import names
from ..run import FINDINGS
from ..target import Target, takes_target
from .progress_lines import ProgressLines
from .stopping import stopped_by_signals

Address = Annotated[str, typer.Argument(help="The brokers, as kafka://host:9092, or several with commas.")]
Topics = Annotated[list[str], typer.Option("--topic", help="A topic; repeatable.")]
Targets = Annotated[
    list[str] | None,
    typer.Option("--as", help="The name of the table here; once for each --topic.", show_default="as there"),
]
Format = Annotated[
    str, typer.Option("--format", help="Of the messages: json, arrow, avro, debezium-json or debezium-avro.")
]
Op = Annotated[str, typer.Option("--op", help="How rows are written: upsert, insert, or one of these with _ignore.")]
Key = Annotated[
    str,
    typer.Option("--key", help="The key of a new table, comma-separated; by default the fields of the messages' keys."),
]
RegistryUrl = Annotated[str, typer.Option("--registry", help="The registry of Avro's schemas, as http://host:8081.")]
Group = Annotated[
    str, typer.Option("--group", help="The name of the group: its processes share the partitions, and its positions.")
]
Start = Annotated[
    str, typer.Option("--start", help="Where topics begin that the group has not consumed: earliest or latest.")
]
Once = Annotated[bool, typer.Option("--until-caught-up", "--once", help="End when all messages so far are applied.")]
Gap = Annotated[
    bool, typer.Option("--accept-gap", help="Where messages are gone, continue with the oldest one there is.")
]
RejectsMax = Annotated[
    int | None,
    typer.Option("--rejects-max", min=0, help="End when more messages are rejected.", show_default="no limit"),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", help="A file with options of Kafka's client, such as security.protocol=SASL_SSL, one a line."
    ),
]


@takes_target()
def consume(
    target: Target,
    address: Address,
    topics: Topics,
    targets: Targets = None,
    format: Format = "json",
    op: Op = "upsert",
    key: Key = "",
    registry: RegistryUrl = "",
    group: Group = "nyala",
    start: Start = "earliest",
    until_caught_up: Once = False,
    accept_gap: Gap = False,
    rejects_max: RejectsMax = None,
    config: Config = None,
) -> None:
    """Apply the messages of Kafka's topics to tables, each exactly once, until Ctrl-C.

    nyala consume kafka://broker.example:9092 --topic shop.public.orders --as orders --format debezium-json

    A later run continues where the last one ended. Messages that cannot be applied are in the table nyala_rejects; the
    exit code is then 1. The table nyala_sources shows how far each partition is.
    """
    if targets and len(targets) != len(topics):
        raise InvalidArgumentError(
            f"{counted(len(topics), 'topic')} and {counted(len(targets), 'name')}: give --as once for each --topic, or "
            "not at all"
        )
    from ...sources.kafka.consuming import consumer

    with target.database(create=True) as database:
        lines = ProgressLines(sys.stderr.isatty(), target.json_output)
        runner = consumer(
            database,
            address,
            dict(zip(topics, targets or topics, strict=True)),
            format=format,
            op=op,
            key=names(key),
            registry=registry,
            group=group,
            start=start,
            until_caught_up=until_caught_up,
            accept_gap=accept_gap,
            rejects_max=rejects_max,
            options=_options(config),
            report=lines.report,
        )
        try:
            with stopped_by_signals(runner.stop):
                result = runner.run()
        finally:
            lines.end()
    if not target.prints_json(result):
        rejected = f", {result.rejects:,} of them rejected: see the table nyala_rejects" if result.rejects else ""
        typer.echo(f"applied {counted(result.messages, 'message')} in {counted(result.commits, 'commit')}{rejected}")
    if result.rejects:
        raise typer.Exit(FINDINGS)


def _options(config: Path | None) -> dict[str, str]:
    """Return the options in a file, as Kafka's own tools read them."""
    options: dict[str, str] = {}
    for number, line in enumerate(config.read_text().splitlines() if config else (), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            name, mark, value = text.partition("=")
            if not mark:
                raise InvalidArgumentError(f"{config}, line {number}: write options as name=value")
            options[name.strip()] = value.strip()
    return options
