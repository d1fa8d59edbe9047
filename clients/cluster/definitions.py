"""Tables over several servers: created, altered, dropped and recalled on one server after the other.

There is no transaction over servers. If a server was away or the client was killed, only some servers have the change;
repeating the call applies it on the others. So each function here first finds out what has happened where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, NotFoundError, StoreError
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription, TableStore, TabletMap
from ...schemas.table.alter import AddRangePartition, Alteration, RenameTable
from ...schemas.table.partition_schema import sum_of
from ...schemas.table.table import AUTO_INCREMENTING, TableDefinition
from .servers import Servers

Described = TableDescription | StoreError
_OWN = {"table_id", "name", "stores"}
"""Fields that may differ between servers."""


def create(servers: Servers, definition: TableDefinition) -> TableDescription:
    """Create a table on those of several servers that lack it.

    Raises:
        AlreadyPresentError: it exists with all of its tablets.
        ConflictError: a server has another table of that name.
    """
    _check(definition)
    before = _present(servers.outcomes(lambda store: store.describe_table(definition.name)))
    if before and is_whole([servers.store(name).tablets(definition.name) for name in before]):
        if definition.if_not_exists:
            return same(before)
        raise AlreadyPresentError(f"table {definition.name!r} already exists, on {', '.join(before)}")
    lacking = definition.model_copy(update={"if_not_exists": True})
    return same({name: servers.store(name).create_table(lacking) for name in servers.names})


def is_whole(maps: Iterable[TabletMap]) -> bool:
    """Return whether the servers of these maps of a table's tablets together have all tablets of the table."""
    told = list(maps)
    here = sum_of(place.partition for each in told for place in each.tablets if place.server is None)
    return all(sum_of(place.partition for place in each.tablets) == here for each in told)


def alter(servers: Servers, alteration: Alteration) -> TableDescription:
    """Alter a table on all servers; after an incomplete attempt, on those where it is still unaltered.

    Raises:
        ConflictError: the servers have more than two versions of the table, or different ones afterwards.
        InvalidArgumentError: a new range might go to a server that does not have the table; or the table shall take
            the place of another.
        StoreError: the error of the first server that fails; a note lists the servers altered before.
    """
    if any(isinstance(step, RenameTable) and step.replaces is not None for step in alteration.steps):
        raise InvalidArgumentError(
            f"table {alteration.table!r} cannot replace another table when several servers share the tables: "
            "drop the other table, then rename this table"
        )
    found = servers.outcomes(lambda store: store.describe_table(alteration.table))
    present = _present(found)
    if not present:
        raise next(error for error in found.values() if isinstance(error, StoreError))
    if any(isinstance(step, AddRangePartition) for step in alteration.steps):
        lacking = [name for name, each in found.items() if isinstance(each, NotFoundError)]
        _check_new_ranges(servers, alteration.table, lacking)
    oldest = min(each.schema_version for each in present.values())
    if any(each.schema_version > oldest + 1 for each in present.values()):
        raise ConflictError(
            f"the schema versions of table {alteration.table!r} differ between the servers by more than one "
            "alteration, so this alteration cannot repair them: see nyala cluster check"
        )
    behind = [name for name, each in present.items() if each.schema_version == oldest]
    wanted = alteration.model_copy(update={"if_version": alteration.if_version or oldest})
    done: dict[str, TableDescription] = {}
    try:
        for name in behind:
            done[name] = servers.store(name).alter_table(wanted)
    except StoreError as error:
        if done:
            error.add_note(
                f"{', '.join(done)} already applied the alteration; repeat it to apply it on the other servers"
            )
        raise
    new_name = next(iter(done.values())).name
    rest = [name for name, each in found.items() if name not in done and not isinstance(each, NotFoundError)]
    if alteration.table != new_name:  # an earlier attempt may have renamed it on other servers
        rest = [name for name in servers.names if name not in done and _has(servers.store(name), new_name)]
    return same(done | {name: servers.store(name).describe_table(new_name) for name in rest})


def drop(servers: Servers, name: str, keep_seconds: int) -> None:
    """Drop a table on those of several servers that have it. Raises NotFoundError if none has."""
    _wherever(servers, lambda store: store.drop_table(name, keep_seconds))


def recall(servers: Servers, table: str | int, new_name: str | None) -> TableDescription:
    """Recall a table on those of several servers that dropped it. Raises NotFoundError if none can."""
    if isinstance(table, int):
        raise InvalidArgumentError(
            "a table of several servers cannot be recalled by its id, which differs between servers: give its name"
        )
    _wherever(servers, lambda store: store.recall_table(table, new_name))
    return same(servers.each_with(lambda store: store.describe_table(new_name or table)))


def same(described: Mapping[str, TableDescription]) -> TableDescription:
    """Return the description that all servers give of a table. Raises ConflictError if they differ."""
    (first_name, first), *others = described.items()
    for name, other in others:
        if first.model_dump(exclude=_OWN) != other.model_dump(exclude=_OWN):
            raise ConflictError(
                f"table {first.name!r} differs between the servers {first_name!r} and {name!r}: see nyala cluster check"
            )
    return first.model_copy(update={"stores": _stores(described)})


def _stores(described: Mapping[str, TableDescription]) -> list[TableStore]:
    return [each.model_copy(update={"server": server}) for server, about in described.items() for each in about.stores]


def shared(described: Mapping[str, TableDescription]) -> TableDescription:
    """Return one description of a table that an alteration may have reached on some servers only.

    It has the columns that all servers have, as in the oldest version, so that every server accepts writes of them.

    Raises:
        ConflictError: servers differ within one version, or in the key.
    """
    versions = {each.schema_version for each in described.values()}
    if len(versions) == 1:
        return same(described)
    oldest = min(described.values(), key=lambda each: each.schema_version)
    common = set.intersection(*({(column.id, column.name) for column in each.columns} for each in described.values()))
    columns = [column for column in oldest.columns if (column.id, column.name) in common]
    if not {column.name for column in columns}.issuperset(oldest.primary_key):
        raise half_altered(oldest.name, {name: each.schema_version for name, each in described.items()})
    return oldest.model_copy(update={"columns": columns, "stores": _stores(described)})


def half_altered(table: str, versions: Mapping[str, int]) -> ConflictError:
    """Return the error for an alteration that reached only some servers."""
    told = ", ".join(f"{name}: {version}" for name, version in versions.items())
    return ConflictError(
        f"table {table!r} has different schema versions on the servers ({told}): an alteration reached only some "
        "servers; repeat it to apply it on the other servers"
    )


def _wherever(servers: Servers, act: Callable[[StoreService], object]) -> None:
    """Act on all servers, ignoring those without the table: an earlier attempt may have been there."""
    outcomes = servers.outcomes(act)
    errors = [found for found in outcomes.values() if isinstance(found, StoreError)]
    missing = [error for error in errors if isinstance(error, NotFoundError)]
    if len(errors) > len(missing) or len(missing) == len(outcomes):
        raise next((error for error in errors if error not in missing), errors[0])


def _present(found: Mapping[str, Described]) -> dict[str, TableDescription]:
    """Return the descriptions from servers that have the table; raise any error other than NotFoundError."""
    for each in found.values():
        if isinstance(each, StoreError) and not isinstance(each, NotFoundError):
            raise each
    return {name: each for name, each in found.items() if isinstance(each, TableDescription)}


def _check_new_ranges(servers: Servers, table: str, lacking: Sequence[str]) -> None:
    """Reject ranges that might belong to a server newer than the table: it lacks the table."""
    if placed := sorted(servers.placement.servers_of(table).intersection(lacking)):
        raise InvalidArgumentError(
            f"table {table!r} is not on {', '.join(placed)}, which may get a tablet of the new range: add "
            f"[tables.{table}] to the placement files of all servers, and list there the servers that have the table"
        )


def _has(store: StoreService, table: str) -> bool:
    return table in store.tables()


def _check(definition: TableDefinition) -> None:
    levels = definition.partition_by
    used = {name for level in levels for name in (getattr(level, "hash", None) or getattr(level, "range", ()))}
    if AUTO_INCREMENTING in used:
        raise InvalidArgumentError(
            f"partition_by cannot use {AUTO_INCREMENTING} when several servers share the table: a server assigns this "
            "column only after the tablet is chosen"
        )
