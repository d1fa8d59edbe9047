"""How tables and columns are named."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt.adapters.base import BaseRelation, Column
from dbt.adapters.contracts.relation import Policy


@dataclass
class NyalaIncludePolicy(Policy):
    """A name needs no schema: there is one."""

    database: bool = False
    schema: bool = False
    identifier: bool = True


@dataclass
class NyalaQuotePolicy(Policy):
    """Names are in quotes, and keep their case."""

    database: bool = True
    schema: bool = True
    identifier: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class NyalaRelation(BaseRelation):
    """A table."""

    include_policy: Policy = field(default_factory=NyalaIncludePolicy)
    quote_policy: Policy = field(default_factory=NyalaQuotePolicy)


@dataclass
class NyalaColumn(Column):
    """A column. Text has no length."""

    @property
    def data_type(self) -> str:
        """The type, as a statement has it."""
        if self.is_numeric() and self.numeric_precision is not None:
            return f"{self.dtype}({int(self.numeric_precision)},{int(self.numeric_scale)})"
        return self.dtype
