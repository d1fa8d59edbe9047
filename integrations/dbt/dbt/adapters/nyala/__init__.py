"""The adapter of dbt for Nyala: how to connect, and how a table, its columns and their types are named."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.nyala.adapter import NyalaAdapter
from dbt.adapters.nyala.connections import NyalaConnectionManager, NyalaCredentials
from dbt.adapters.nyala.relation import NyalaColumn, NyalaRelation
from dbt.include import nyala

__all__ = ["NyalaAdapter", "NyalaColumn", "NyalaConnectionManager", "NyalaCredentials", "NyalaRelation"]

Plugin = AdapterPlugin(
    adapter=NyalaAdapter,  # type: ignore[arg-type]
    credentials=NyalaCredentials,
    include_path=nyala.PACKAGE_PATH,
)
