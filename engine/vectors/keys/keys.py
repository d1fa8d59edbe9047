"""Encoded primary keys: everything that other rooms use, in one place."""

from .key_encoder import KeyEncoder
from .key_merging import merge_order, merge_places
from .key_order import argsort_keys, keys_ascend
from .key_vector import (
    BytesKeys,
    KeyVector,
    U64Keys,
    concat_keys,
    equal_at,
    first_occurrences,
    hash_keys,
    key_bytes,
    keys_as_bytes,
    keys_at_least,
    keys_less_equal,
    lower_bound,
    outermost_keys,
    slice_keys,
    take_keys,
)

__all__ = [
    "BytesKeys",
    "KeyEncoder",
    "KeyVector",
    "U64Keys",
    "argsort_keys",
    "concat_keys",
    "equal_at",
    "first_occurrences",
    "hash_keys",
    "key_bytes",
    "keys_as_bytes",
    "keys_ascend",
    "keys_at_least",
    "keys_less_equal",
    "lower_bound",
    "merge_order",
    "merge_places",
    "outermost_keys",
    "slice_keys",
    "take_keys",
]
