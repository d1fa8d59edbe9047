"""ALTER TABLE and COMMENT ON: all steps of a statement are one change of the table."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ....schemas.errors import InvalidArgumentError, NotFoundError
from ....schemas.protocol.service import StoreService
from ....schemas.store.description import TableDescription
from ....schemas.table import alter as steps
from ....schemas.table.column import ColumnDefinition
from ..text.dialect import AddRange, ColumnSettings, DropRange, SplitAt
from ..text.names import checked_column, name_of, refuse_others, shown, table_name
from .columns import built_column, default_json, definition_of, expression_of, setting, type_word
from .partitions import bound_of, values_of
from .refusals import refuse_kind
from .writing import Changed

ALTER, COMMENT = "ALTER TABLE", "COMMENT"
_SETTINGS: dict[str, Any] = {
    "encoding": steps.SetEncoding,
    "compression": steps.SetCompression,
    "block_rows": steps.SetBlockRows,
    "too_long": steps.SetTooLong,
}


def alter(tree: exp.Alter, store: StoreService) -> Changed:
    """Apply all steps of an ALTER TABLE, or none.

    Raises:
        NotFoundError, AlreadyPresentError: a table does not exist, or the new name does.
        InvalidArgumentError: a step is not possible.
    """
    kind = str(tree.args.get("kind"))
    if kind != "TABLE":
        refuse_kind("ALTER", kind)
    refuse_others(tree, {"this", "kind", "actions", "exists", "only"}, ALTER)
    name = table_name(tree.this)
    try:
        table = store.describe_table(name)
    except NotFoundError:
        if tree.args.get("exists"):
            return Changed(ALTER, 0)
        raise
    collected = _AlterSteps(table)
    for action in tree.args["actions"]:
        collected.add(action)
    return _applied(store, name, collected.steps, ALTER)


def comment(tree: exp.Comment, store: StoreService) -> Changed:
    """Run COMMENT ON: set the comment of a table or column; NULL removes it. Raises as ``alter``."""
    kind = str(tree.args.get("kind")).upper()
    if kind not in ("TABLE", "COLUMN"):
        refuse_kind("COMMENT ON", kind)
    column = None
    if kind == "TABLE":
        name = table_name(tree.this)
    else:
        if not isinstance(tree.this, exp.Column) or not tree.this.table:
            raise InvalidArgumentError("COMMENT ON COLUMN takes the table and the column, as in t.a")
        name, column = name_of(tree.this.args["table"]), name_of(tree.this)
    return _applied(store, name, [steps.SetComment(name=column, comment=tree.expression.name)], COMMENT)


def _applied(store: StoreService, name: str, made: list[steps.Step], kind: str) -> Changed:
    if made:
        store.alter_table(steps.Alteration(table=name, steps=made))
    return Changed(kind, 0)


class _AlterSteps:
    """Collects the steps of one ALTER TABLE. Each sees the columns as the earlier ones left them."""

    def __init__(self, table: TableDescription) -> None:
        self._table = table.name
        self._types = {column.name: column.type for column in table.columns}
        self.steps: list[steps.Step] = []

    def add(self, action: exp.Expr) -> None:
        """Add the steps of an action. Raises InvalidArgumentError: it is not possible."""
        for kind, take in _ACTIONS.items():
            if isinstance(action, kind):
                take(self, action)
                return
        raise InvalidArgumentError(
            f"ALTER TABLE does not take {shown(action)}: it takes ADD, DROP, RENAME and ALTER COLUMN, RENAME TO, SET, "
            "RESET, ADD PARTITION, DROP PARTITION and SPLIT PARTITION"
        )

    def _add_column(self, action: exp.ColumnDef) -> None:
        name = name_of(action)
        if action.args.get("exists") and name in self._types:
            return
        definition, is_key = definition_of(action, adds=True)
        if is_key:
            raise InvalidArgumentError(f"column {name!r} cannot be added to the primary key, which never changes")
        self._types[name] = definition.type
        self.steps.append(steps.AddColumn.model_validate(definition.model_dump()))

    def _drop_column(self, action: exp.Drop) -> None:
        if action.args.get("kind") != "COLUMN":
            raise InvalidArgumentError(
                "ALTER TABLE drops only columns and partitions: a table has no constraints to drop"
            )
        for each in action.args["tables"]:
            name = name_of(each)
            if not (action.args.get("exists") and name not in self._types):
                self._types.pop(name, None)
                self.steps.append(steps.DropColumn(name=name))

    def _rename_column(self, action: exp.RenameColumn) -> None:
        name, new_name = name_of(action.this), name_of(action.args["to"])
        if action.args.get("exists") and name not in self._types:
            return
        if name in self._types:
            self._types[new_name] = self._types.pop(name)
        self.steps.append(steps.RenameColumn(name=name, to=new_name))

    def _rename(self, action: exp.AlterRename) -> None:
        self.steps.append(steps.RenameTable(to=table_name(action.this)))

    def _alter_column(self, action: exp.AlterColumn) -> None:
        name = checked_column(name_of(action), self._types, self._table)
        parts = action.args
        if parts.get("dtype") is not None:
            refuse_others(action, {"this", "dtype"}, "ALTER COLUMN ... TYPE")
            self._types[name] = type_word(parts["dtype"], name)
            self.steps.append(steps.WidenColumn(name=name, type=self._types[name]))
        elif parts.get("comment") is not None:
            self.steps.append(steps.SetComment(name=name, comment=parts["comment"].name))
        elif parts.get("default") is not None:
            column: ColumnDefinition = built_column({"name": name, "type": self._types[name]})
            computed = expression_of(parts["default"])
            default = None if computed else default_json(parts["default"], column)
            self.steps.append(steps.SetDefault(name=name, write_default=default, default_expression=computed))
        elif parts.get("drop") and parts.get("allow_null"):
            self.steps.append(steps.DropNotNull(name=name))
        elif parts.get("drop"):
            self.steps.append(steps.SetDefault(name=name, write_default=None))
        else:
            raise InvalidArgumentError(
                f"column {name!r} cannot become NOT NULL: add a new column with NOT NULL and a DEFAULT, and fill it"
            )

    def _set(self, action: exp.AlterSet) -> None:
        refuse_others(action, {"expressions"}, "ALTER TABLE ... SET")
        for each in action.expressions:
            option, value = setting(each)
            self.steps.append(steps.SetOption(option=option, value=value))

    def _set_column(self, action: ColumnSettings) -> None:
        name = name_of(action)
        for each in action.expressions:
            option, value = setting(each)
            if option not in _SETTINGS:
                raise InvalidArgumentError(
                    f"the option {option!r} of column {name!r} cannot be changed; only these can: "
                    f"{', '.join(_SETTINGS)}"
                )
            self.steps.append(_SETTINGS[option].model_validate({"name": name, option: value}))

    def _add_range(self, action: AddRange) -> None:
        self.steps.append(steps.AddRangePartition.model_validate(bound_of(action.this).model_dump()))

    def _drop_range(self, action: DropRange) -> None:
        bound = bound_of(action.this)
        if bound.hash is not None:
            raise InvalidArgumentError("DROP PARTITION takes the ends of the range only")
        self.steps.append(steps.DropRangePartition.model_validate(bound.model_dump(exclude={"hash"})))

    def _split(self, action: SplitAt) -> None:
        self.steps.append(steps.SplitPartition(at=values_of(action)))


_ACTIONS: dict[type, Any] = {
    exp.ColumnDef: _AlterSteps._add_column,
    exp.Drop: _AlterSteps._drop_column,
    exp.RenameColumn: _AlterSteps._rename_column,
    exp.AlterRename: _AlterSteps._rename,
    exp.AlterColumn: _AlterSteps._alter_column,
    exp.AlterSet: _AlterSteps._set,
    ColumnSettings: _AlterSteps._set_column,
    AddRange: _AlterSteps._add_range,
    DropRange: _AlterSteps._drop_range,
    SplitAt: _AlterSteps._split,
}
