"""The functions that queries may call."""

_KNOWN = """
abs acos acosh array_add array_any_value array_append array_avg array_cat array_compact array_concat
array_dims array_distance array_distinct array_element array_except
array_has array_has_all array_has_any array_intersect array_join array_length array_max array_min
array_ndims array_normalize array_pop_back array_pop_front array_position array_positions array_prepend
array_product array_remove array_remove_all array_remove_n array_replace
array_replace_all array_replace_n array_reverse array_scale array_slice array_sort array_subtract array_sum
array_to_string array_union arrays_zip arrow_cast arrow_try_cast arrow_typeof ascii asin asinh atan
atan2 atanh bit_length btrim cardinality cbrt ceil char_length character_length chr coalesce concat concat_ws
contains cos cosh cosine_distance cot current_date current_time current_timestamp date_bin date_format date_part
date_trunc datepart datetrunc decode degrees digest dot_product element_at empty encode ends_with exp factorial
find_in_set flatten floor from_unixtime gcd get_field greatest ifnull initcap inner_product instr isnan iszero json_get
json_get_text lcm least left length levenshtein ln log log10 log2 lower ltrim make_array make_date make_list make_time
map map_entries map_extract map_keys map_values md5 named_struct nanvl now nullif nvl nvl2 octet_length overlay pi
position pow power radians rand random regexp_count regexp_instr regexp_like regexp_match regexp_replace replace
reverse right round row rtrim sha224 sha256 sha384 sha512 signum sin sinh split_part sqrt starts_with
string_to_array string_to_list strpos struct substr substr_index substring substring_index tan tanh to_char
to_date to_hex to_local_time to_time to_timestamp to_timestamp_micros to_timestamp_millis to_timestamp_nanos
to_timestamp_seconds to_unixtime today translate trim trunc upper uuid
"""
FUNCTIONS = frozenset(_KNOWN.split())
"""The functions of single rows that queries may call. Those that make long values of nothing are not among them:
``repeat``, ``lpad``, ``rpad``, ``range``, ``array_repeat``, ``array_resize``, ``generate_series``."""
_CHANGING = "now current_timestamp current_date current_time localtimestamp localtime today random rand uuid"
CHANGING = frozenset(_CHANGING.split())
"""The functions whose value is another one each time that a query runs."""
