"""Shape: the JSON of a model, as a text for readers: ``{"table","as_of"?,"columns":["a"|"b"]}``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_DEPTH = 3
"""Objects further inside are shown as ``{...}``."""


def shape(model: type[BaseModel], is_request: bool = False) -> str:
    """Return the shape of a message's JSON: the names of the fields, and what is inside of them. ``is_request``: a name
    that can be left out is followed by a question mark."""
    return _object(model, is_request, 1)


def _object(model: type[BaseModel], is_request: bool, depth: int) -> str:
    if depth > _DEPTH:
        return "{...}"
    words: list[str] = []
    for name, field in model.model_fields.items():
        inside = _inside(field.annotation, is_request, depth)
        word = f'"{name}"{"?" if is_request and _is_optional(field) else ""}{f":{inside}" if inside else ""}'
        if not field.exclude:
            words.insert(0 if _is_tag(field) else len(words), word)
    return f"{{{','.join(words)}}}"


def _is_tag(field: FieldInfo) -> bool:
    """Whether the value says of which model an object is."""
    return get_args(field.annotation) == (field.default,)


def _is_optional(field: FieldInfo) -> bool:
    return not field.is_required() and not _is_tag(field)


def _inside(kind: Any, is_request: bool, depth: int) -> str:
    """Return the shape of the values of a type; empty for single values, such as numbers."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _inside(parts[0], is_request, depth)
    if origin in (Union, UnionType):
        shapes = dict.fromkeys(_inside(each, is_request, depth) for each in parts if each is not type(None))
        return "" if "" in shapes else "|".join(shapes)
    if origin is Literal:
        return "|".join(f'"{each}"' for each in parts)
    plain = origin or kind
    if not isinstance(plain, type):
        return ""
    if issubclass(plain, BaseModel):
        return _object(plain, is_request, depth + 1)
    if issubclass(plain, Enum):
        return "|".join(f'"{each.value}"' for each in plain)
    if issubclass(plain, Mapping):
        return "{...}"
    if issubclass(plain, Collection) and not issubclass(plain, str | bytes):
        return f"[{_inside(parts[0], is_request, depth) or '...'}]"
    return ""
