"""What a query may use of DataFusion: no files, no writes, no settings, a list of functions, and a bound of memory."""

from __future__ import annotations

from dataclasses import dataclass

from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions

from .exact_parts import truncating_function
from .functions import FUNCTIONS
from .moment_texts import text_function
from .statement import CATALOG, SCHEMA
from .text.json_paths import json_functions
from .whole_numbers import rounding_function
from .workers import begin_workers, check_workers


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """What SQL queries may take of memory and threads."""

    memory_bytes: int = 1 << 30
    """Memory of all sorts, joins and groups of statements that run at the same time."""
    leaf_bytes: int = 256 << 20
    """The most bytes of a statement's tables that are read before it runs; larger tables stream."""
    partitions: int = 0
    """Threads of a statement; 0: as many as there are processors."""
    spill_folder: str | None = None
    """Where sorts and groups of many rows spill; None: the system's folder for temporary files."""


class Fences:
    """Makes the sessions of DataFusion in which queries run; they share one bound of memory. Thread safe."""

    def __init__(self, limits: SqlLimits, partitions: int) -> None:
        begin_workers()
        runtime = RuntimeEnvBuilder().with_fair_spill_pool(limits.memory_bytes)
        folder = limits.spill_folder
        self._runtime = (
            runtime.with_disk_manager_os() if folder is None else runtime.with_disk_manager_specified(folder)
        )
        self._config = (
            SessionConfig()
            .with_target_partitions(partitions)
            .with_information_schema(False)
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(True)
        )
        self._own = (*json_functions(), rounding_function(), truncating_function(), text_function())
        self._refused: tuple[str, ...] | None = None

    def session(self) -> SessionContext:
        """Return a new session, without tables. Raises UnavailableError: see ``check_workers``."""
        check_workers()
        session = SessionContext(self._config, self._runtime)
        if self._refused is None:
            self._refused = tuple(name for name in session.udfs() if name not in FUNCTIONS)
        for name in self._refused:
            session.deregister_udf(name)
        for name in ("generate_series", "range"):
            session.deregister_udtf(name)
        for function in self._own:
            session.register_udf(function)
        return session


QUERIES_ONLY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
