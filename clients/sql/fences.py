"""What a query may use of DataFusion: no files, no writes, no settings, a list of functions, and a bound of memory."""

from __future__ import annotations

from dataclasses import dataclass

from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions

from .statement import CATALOG, SCHEMA

_KNOWN = """
abs acos acosh array_add array_any_value array_append array_avg array_cat array_compact array_concat
array_contains array_dims array_distance array_distinct array_element array_empty array_except array_extract
array_has array_has_all array_has_any array_indexof array_intersect array_join array_length array_max array_min
array_ndims array_normalize array_pop_back array_pop_front array_position array_positions array_prepend
array_product array_push_back array_push_front array_remove array_remove_all array_remove_n array_replace
array_replace_all array_replace_n array_reverse array_scale array_slice array_sort array_subtract array_sum
array_to_string array_union arrays_overlap arrays_zip arrow_cast arrow_try_cast arrow_typeof ascii asin asinh atan
atan2 atanh bit_length btrim cardinality cbrt ceil char_length character_length chr coalesce concat concat_ws
contains cos cosh cosine_distance cot current_date current_time current_timestamp date_bin date_format date_part
date_trunc datepart datetrunc decode degrees digest dot_product element_at empty encode ends_with exp factorial
find_in_set flatten floor from_unixtime gcd get_field greatest ifnull initcap inner_product instr isnan iszero lcm
least left length levenshtein ln log log10 log2 lower ltrim make_array make_date make_list make_time map
map_entries map_extract map_keys map_values md5 named_struct nanvl now nullif nvl nvl2 octet_length overlay pi
position pow power radians rand random regexp_count regexp_instr regexp_like regexp_match regexp_replace replace
reverse right round row rtrim sha224 sha256 sha384 sha512 signum sin sinh split_part sqrt starts_with
string_to_array string_to_list strpos struct substr substr_index substring substring_index tan tanh to_char
to_date to_hex to_local_time to_time to_timestamp to_timestamp_micros to_timestamp_millis to_timestamp_nanos
to_timestamp_seconds to_unixtime today translate trim trunc upper uuid
"""
FUNCTIONS = frozenset(_KNOWN.split())
"""The functions of single rows that queries may call. Those that make long values of nothing are not among them:
``repeat``, ``lpad``, ``rpad``, ``range``, ``array_repeat``, ``array_resize``, ``generate_series``."""


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """What statements may take."""

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
        self._refused: tuple[str, ...] | None = None

    def session(self) -> SessionContext:
        """Return a new session, without tables."""
        session = SessionContext(self._config, self._runtime)
        if self._refused is None:
            self._refused = tuple(name for name in session.udfs() if name not in FUNCTIONS)
        for name in self._refused:
            session.deregister_udf(name)
        for name in ("generate_series", "range"):
            session.deregister_udtf(name)
        return session


QUERIES_ONLY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
