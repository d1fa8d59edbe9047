"""The messages of Flight SQL, built at import from a table of field numbers.

The table is the wire contract: FlightSql.proto and Flight.proto of Apache Arrow. There is no generated code.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ...schemas.errors import InvalidArgumentError

_SQL, _FLIGHT = "arrow.flight.protocol.sql", "arrow.flight.protocol"
_HOST = "type.googleapis.com/"
_URL = f"{_HOST}{_SQL}.".encode()

_SQL_FIELDS = """
CommandGetSqlInfo: info=1 uint32*
CommandGetXdbcTypeInfo: data_type=1 int32?
CommandGetCatalogs:
CommandGetDbSchemas: catalog=1 string?, db_schema_filter_pattern=2 string?
CommandGetTables: catalog=1 string?, db_schema_filter_pattern=2 string?, table_name_filter_pattern=3 string?, \
table_types=4 string*, include_schema=5 bool
CommandGetTableTypes:
CommandGetPrimaryKeys: catalog=1 string?, db_schema=2 string?, table=3 string
CommandGetExportedKeys: catalog=1 string?, db_schema=2 string?, table=3 string
CommandGetImportedKeys: catalog=1 string?, db_schema=2 string?, table=3 string
CommandGetCrossReference: pk_catalog=1 string?, pk_db_schema=2 string?, pk_table=3 string, fk_catalog=4 string?, \
fk_db_schema=5 string?, fk_table=6 string
ActionCreatePreparedStatementRequest: query=1 string, transaction_id=2 bytes?
ActionCreatePreparedSubstraitPlanRequest: plan=1 bytes, transaction_id=2 bytes?
ActionCreatePreparedStatementResult: prepared_statement_handle=1 bytes, dataset_schema=2 bytes, \
parameter_schema=3 bytes, is_update=4 bool?
ActionClosePreparedStatementRequest: prepared_statement_handle=1 bytes
ActionBeginTransactionRequest:
ActionBeginSavepointRequest: transaction_id=1 bytes, name=2 string
ActionBeginTransactionResult: transaction_id=1 bytes
ActionBeginSavepointResult: savepoint_id=1 bytes
ActionEndTransactionRequest: transaction_id=1 bytes, action=2 int32
ActionEndSavepointRequest: savepoint_id=1 bytes, action=2 int32
ActionCancelQueryRequest: info=1 bytes
ActionCancelQueryResult: result=1 int32
CommandStatementQuery: query=1 string, transaction_id=2 bytes?
CommandStatementSubstraitPlan: plan=1 bytes, transaction_id=2 bytes?
TicketStatementQuery: statement_handle=1 bytes
CommandPreparedStatementQuery: prepared_statement_handle=1 bytes
CommandStatementUpdate: query=1 string, transaction_id=2 bytes?
CommandPreparedStatementUpdate: prepared_statement_handle=1 bytes
TableDefinitionOptions: if_not_exist=1 int32, if_exists=2 int32
CommandStatementIngest: table_definition_options=1 @TableDefinitionOptions, table=2 string, schema=3 string?, \
catalog=4 string?, temporary=5 bool, transaction_id=6 bytes?
DoPutUpdateResult: record_count=1 int64
DoPutPreparedStatementResult: prepared_statement_handle=1 bytes?
"""
_FLIGHT_FIELDS = """
CancelFlightInfoRequest: info=1 bytes
CancelFlightInfoResult: status=1 int32
StringListValue: values=1 string*
SessionOptionValue: string_value=1 string?, bool_value=2 bool?, int64_value=3 sfixed64?, double_value=4 double?, \
string_list_value=5 @StringListValue
SessionOptionsEntry: key=1 string, value=2 @SessionOptionValue
SetSessionOptionsRequest: session_options=1 @SessionOptionsEntry*
SessionOptionError: value=1 int32
SessionErrorsEntry: key=1 string, value=2 @SessionOptionError
SetSessionOptionsResult: errors=1 @SessionErrorsEntry*
GetSessionOptionsRequest:
GetSessionOptionsResult: session_options=1 @SessionOptionsEntry*
CloseSessionRequest:
CloseSessionResult: status=1 int32
"""
# A map is sent as a list of entries.
_F = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _F.TYPE_STRING,
    "bytes": _F.TYPE_BYTES,
    "bool": _F.TYPE_BOOL,
    "int32": _F.TYPE_INT32,
    "int64": _F.TYPE_INT64,
    "sfixed64": _F.TYPE_SFIXED64,
    "double": _F.TYPE_DOUBLE,
    "uint32": _F.TYPE_UINT32,
}


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, package: str) -> None:
    field = message.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
    plain = kind.rstrip("?*")
    if kind.endswith("*"):
        field.label = _F.LABEL_REPEATED
    if kind.endswith("?"):  # an optional field is alone in a choice
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if plain.startswith("@"):
        field.type, field.type_name = _F.TYPE_MESSAGE, f".{package}.{plain[1:]}"
    else:
        field.type = _TYPES[plain]


def _built(package: str, table: str) -> dict[str, type[Any]]:
    file = descriptor_pb2.FileDescriptorProto(name=f"nyala/{package}.proto", package=package, syntax="proto3")
    for line in table.strip().splitlines():
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=name)
        for each in filter(None, (part.strip() for part in fields.split(","))):
            label, kind = each.split()
            field, number = label.split("=")
            _add_field(message, field, int(number), kind, package)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # pyright: ignore[reportAttributeAccessIssue]
    names = [message.name for message in file.message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in names}


_OF_SQL = _built(_SQL, _SQL_FIELDS)
_OF_FLIGHT = _built(_FLIGHT, _FLIGHT_FIELDS)
_ALL = {f"{_HOST}{_SQL}.{name}": kind for name, kind in _OF_SQL.items()} | {
    f"{_HOST}{_FLIGHT}.{name}": kind for name, kind in _OF_FLIGHT.items()
}


def is_sql(body: bytes) -> bool:
    """Whether a body is a message of Flight SQL: an ``Any``, which names it after the number and length of a field."""
    return body.startswith(_URL, 2)


def read(body: bytes) -> tuple[str, Any]:
    """Return the name of a message in an ``Any``, and the message of Flight SQL itself. Raises InvalidArgumentError: it
    is no such one."""
    try:
        outer = any_pb2.Any.FromString(body)
        kind = _ALL.get(outer.type_url)
        if kind is not None:
            return outer.type_url.rpartition(".")[2], kind.FromString(outer.value)
    except DecodeError:
        raise InvalidArgumentError("the message of Flight SQL is damaged: it is not protobuf") from None
    raise InvalidArgumentError(f"{outer.type_url[-100:]!r} is not a message of Flight SQL that this server knows")


def read_plain(name: str, body: bytes) -> Any:
    """Return a message of Flight SQL that stands for itself, or in an ``Any``. Raises as ``read``."""
    if body.startswith(_HOST.encode(), 2):
        return read(body)[1]
    try:
        return _OF_FLIGHT[name].FromString(body)
    except DecodeError:
        raise InvalidArgumentError(f"the message {name} is damaged: it is not protobuf") from None


def wrapped(name: str, **fields: Any) -> bytes:
    """Return a message of Flight SQL in an ``Any``."""
    value = _OF_SQL[name](**fields).SerializeToString()
    return any_pb2.Any(type_url=f"{_HOST}{_SQL}.{name}", value=value).SerializeToString()


def plain(name: str, **fields: Any) -> bytes:
    """Return a message of Flight SQL that stands for itself."""
    return (_OF_SQL.get(name) or _OF_FLIGHT[name])(**fields).SerializeToString()
