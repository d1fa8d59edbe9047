"""The public call that consumes topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....schemas.errors import InvalidArgumentError
from ....schemas.phrases import perhaps
from ....schemas.rows.operation import Operation
from ...api.database import Database
from ..positions import POSITIONS
from ..runner import Report
from ..source import BatchLimits
from .cluster import Cluster
from .formats.debezium_json import DebeziumJson
from .formats.decoded import Format
from .formats.plain import ArrowFormat, JsonFormat
from .group_runner import Choices, ConsumeResult, GroupRunner
from .rejects import REJECTS
from .topic_table import TopicTable

FORMATS = ("json", "arrow", "avro", "debezium-json", "debezium-avro")
STARTS = ("earliest", "latest")
OPERATIONS = ("upsert", "upsert_ignore", "insert", "insert_ignore")
GROUP = "nyala"


def consumer(
    database: Database,
    address: str,
    topics: Mapping[str, str] | Sequence[str],
    *,
    format: str = "json",
    op: str | Operation = "upsert",
    key: str | Sequence[str] = (),
    registry: str = "",
    group: str = GROUP,
    start: str = "earliest",
    until_caught_up: bool = False,
    accept_gap: bool = False,
    rejects_max: int | None = None,
    options: Mapping[str, Any] | None = None,
    limits: BatchLimits | None = None,
    report: Report = lambda progress: None,
) -> GroupRunner:
    """Return the consumer of Kafka's topics that ``consume`` runs; it can be stopped from another thread.

    Raises:
        InvalidArgumentError: an argument is wrong.
    """
    if isinstance(topics, str) or not topics:
        raise InvalidArgumentError("name at least one topic, as in --topic orders")
    chosen = dict(topics) if isinstance(topics, Mapping) else {each: each for each in topics}
    for topic, table in chosen.items():
        if table in (POSITIONS, REJECTS):
            raise InvalidArgumentError(
                f"{table!r} is a table of the consumer itself: give topic {topic} another table with --as"
            )
    _check("format", format, FORMATS)
    _check("start", start, STARTS)
    _check("operation", str(op), OPERATIONS)
    operation = Operation(op)
    if format.startswith("debezium") and operation.base is not Operation.UPSERT:
        raise InvalidArgumentError("messages of Debezium are changes, which are upserted and deleted: leave --op out")
    if rejects_max is not None and rejects_max < 0:
        raise InvalidArgumentError(f"rejects_max must be at least 0, not {rejects_max}")
    names = [key] if isinstance(key, str) else list(key)
    tables = {
        topic: (TopicTable(database, topic, table, names, operation), _format(format, registry))
        for topic, table in chosen.items()
    }
    cluster = Cluster(address, group, options or {})
    return GroupRunner(
        database,
        cluster,
        group,
        tables,
        Choices(start, accept_gap, until_caught_up),
        report=report,
        limits=limits,
        rejects_max=rejects_max,
    )


def consume(
    database: Database,
    address: str,
    topics: Mapping[str, str] | Sequence[str],
    *,
    format: str = "json",
    op: str | Operation = "upsert",
    key: str | Sequence[str] = (),
    registry: str = "",
    group: str = GROUP,
    start: str = "earliest",
    until_caught_up: bool = False,
    accept_gap: bool = False,
    rejects_max: int | None = None,
    options: Mapping[str, Any] | None = None,
    limits: BatchLimits | None = None,
    report: Report = lambda progress: None,
) -> ConsumeResult:
    """Apply the messages of Kafka's topics to tables of ``database``, each exactly once, until the process ends; with
    ``until_caught_up`` until all are applied that there were when the call began. A later call continues where the
    store is. Several processes of one ``group`` share the partitions.

    ``address`` is ``kafka://host:9092,host2:9092``. ``topics`` are names, or a mapping of these to the names of tables.
    ``format`` is ``json`` or ``arrow`` (rows), ``avro`` (rows, with their schemas in the ``registry``, a URL), or
    ``debezium-json`` or ``debezium-avro`` (changes). Messages with a schema create their table. The table's key is
    ``key``, or by default the fields of the messages' keys. Other messages need a table that is there. ``op`` is how
    rows are written: ``upsert``, ``insert``, or one of these with ``_ignore``. A message without a value deletes its
    key.

    Messages that cannot be applied go to the table ``nyala_rejects``; with more than ``rejects_max`` the run ends.
    ``start`` says where topics begin that the group has not consumed: ``earliest`` or ``latest``. ``accept_gap``
    continues where messages are gone. ``options`` are those of librdkafka, such as ``security.protocol``. ``report`` is
    called about once a second. See docs/kafka.md.

    Raises:
        InvalidArgumentError: an argument is wrong, or there are more rejects than allowed.
        NotFoundError: a topic does not exist, or there is no table for messages that do not describe one.
        ConflictError: messages after the position of a partition are gone, or the position is of another topic.
        UnavailableError: Kafka, the registry or the store could not be reached for five minutes.
    """
    return consumer(
        database,
        address,
        topics,
        format=format,
        op=op,
        key=key,
        registry=registry,
        group=group,
        start=start,
        until_caught_up=until_caught_up,
        accept_gap=accept_gap,
        rejects_max=rejects_max,
        options=options,
        limits=limits,
        report=report,
    ).run()


def _check(what: str, given: str, possible: Sequence[str]) -> None:
    if given not in possible:
        raise InvalidArgumentError(
            f"{given!r} is not a {what} of messages: give one of {', '.join(possible)}{perhaps(given, possible)}"
        )


def _format(name: str, registry: str) -> Format:
    if not name.endswith("avro"):
        if registry:
            raise InvalidArgumentError(f"the format {name} needs no registry of schemas: leave the registry out")
        return {"json": JsonFormat, "arrow": ArrowFormat, "debezium-json": DebeziumJson}[name]()
    if not registry:
        raise InvalidArgumentError(f"the format {name} needs a registry of schemas, as in --registry http://host:8081")
    from .formats.avro import AvroFormat
    from .formats.registry import Registry

    return AvroFormat(Registry(registry), name.startswith("debezium"))
