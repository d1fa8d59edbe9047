"""The destination, as a pipeline names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlt.common.destination import Destination, DestinationCapabilitiesContext

from .configuration import NyalaConfiguration, NyalaCredentials

if TYPE_CHECKING:
    from .client import NyalaClient


class nyala(Destination[NyalaConfiguration, "NyalaClient"]):
    """Tables of a Nyala server. ``credentials`` is its address, or a dictionary of ``uri``, ``token`` and
    ``tls_roots``; without it they come from dlt's configuration, under ``destination.nyala.credentials``."""

    spec = NyalaConfiguration

    def __init__(
        self,
        credentials: NyalaCredentials | dict[str, Any] | str | None = None,
        destination_name: str | None = None,
        environment: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(credentials=credentials, destination_name=destination_name, environment=environment, **options)

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        able = DestinationCapabilitiesContext()
        able.preferred_loader_file_format = "parquet"
        able.supported_loader_file_formats = ["parquet", "reference"]
        able.supported_merge_strategies = ["upsert", "insert-only"]
        able.supported_replace_strategies = ["truncate-and-insert"]
        able.has_case_sensitive_identifiers = True
        able.max_identifier_length = 200
        able.max_column_identifier_length = 256
        able.decimal_precision = (38, 9)
        able.wei_precision = (38, 0)
        able.timestamp_precision = able.max_timestamp_precision = 6
        able.supports_timestamp_precision_configuration = False
        able.supports_ddl_transactions = False
        able.supports_transactions = True
        able.enforces_nulls_on_alter = False
        able.max_text_data_type_length = 65_536
        able.is_max_text_data_type_length_in_bytes = True
        able.recommended_file_size = 128_000_000
        return able

    @property
    def client_class(self) -> type[NyalaClient]:
        """The class that does the work; imported when it is needed."""
        from .client import NyalaClient

        return NyalaClient


nyala.register()
