"""Settings of ``nyala serve``: all options of server and store, from the command line, the environment or a file.

The fields of ``ServeOptions``, ``ServerConfig``, ``StoreOptions`` and ``Limits`` are the only declarations: names in a
TOML file, ``NYALA_<NAME>`` in the environment and ``--set name=value`` follow from them. The command line overrides the
environment, which overrides the file, which overrides the default.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import to_jsonable_python

from ...engine.options import BUDGET_MIN, StoreOptions
from ...schemas.errors import InvalidArgumentError, NotFoundError
from ...schemas.limits.limits import Limits
from ...schemas.limits.usable import usable_memory
from ...schemas.message import Message
from .config import ServerConfig, listed

ENVIRONMENT = "NYALA_"
LIMITS = "limits_"
_OTHER_VARIABLES = (
    *("url", "cache_dir", "executor", "config"),
    *("token", "token_file", "tls_roots", "client_cert", "client_key"),
)
"""Other variables with the prefix ``NYALA_``."""
_KEY_SOURCES = frozenset({"key_file", "key_command"})
SECURITY_OPTIONS = (
    *("tls_cert", "tls_key", "tls_client_ca", "tls_client_certs"),
    *("tokens", "jwks", "jwt_issuer", "jwt_audience", "jwt_algorithms"),
    *("handshake_seconds", "admins", "audit_log", "audit_log_bytes", "audit_log_files"),
)
"""The options of TLS and authentication."""
_SECRET = frozenset({"key_command"})
_HIDDEN = "***"
_NEAR = 0.8
"""A variable this similar to one of ours is a mistake; others belong to somebody else, such as a container system."""
_SERVER_SHARE = 2
"""The part of a machine's memory that is the budget of a server, as a divisor."""


JwtAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


def _located(given: Any) -> Any:
    return given if not isinstance(given, str) or "://" in given else Path(given)


def _joined(given: Any) -> Any:
    return (",".join(given) or None) if isinstance(given, list | tuple) else given


class ServeOptions(Message, frozen=True, extra="forbid"):
    """The settings of the command ``nyala serve`` itself."""

    data: Annotated[Path | str | None, BeforeValidator(_located)] = None
    """The data directory, or the URL of a bucket such as s3://bucket/root; created if missing."""
    listen: Annotated[str | None, BeforeValidator(_joined)] = None
    """Where to listen; port 0 picks a free one. By default grpc://127.0.0.1:8815, or from the placement. With several
    names, an address of each, separated by commas, or one from which ports are counted up."""
    insecure: bool = False
    """Listen on an address that other machines reach, without TLS or login."""
    http_port: int | None = Field(default=None, ge=0, le=65535)
    """The port of health, readiness and metrics over HTTP, with the TLS and the login of ``listen``; 0 picks a free
    one. By default there is none."""
    http_host: str = "127.0.0.1"
    """The address on which ``http_port`` listens."""
    json_output: bool = False
    """Print and log JSON lines."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    memory_mb: int | None = Field(default=None, ge=16)
    """Memory for the store, on top of about 300 MB for the process: ``budget_bytes`` in MiB. By default half of the
    memory that the process may use."""
    placement: Path | None = None
    """The placement file of the servers that share their tables."""
    name: Annotated[str | None, BeforeValidator(_joined)] = None
    """This server's name in the placement file; in a bucket, the name of its store, or several, separated by commas:
    the one to have first, then those to stand by for."""
    standby: bool = True
    """Wait while another process has the store, which is in a bucket, and take over from it; else it is an error."""
    prefer: bool = True
    """Take a store over as soon as nobody has it; else let other processes that wait be first."""
    replica: bool = False
    """While it waits for a store in a bucket, answer reads that may be behind: scans with ``max_staleness``, and those
    at an earlier time. It then opens the store's files, and keeps new rows in memory, like the process that has it."""
    processes: int | None = Field(default=None, ge=1, le=64)
    """How many processes share the tablets of the store, for as many processors: see docs/processes.md. By default as
    many as the store has."""
    tls_cert: Path | None = None
    """The server's certificate in PEM, with those between it and a root. Read again when it changes, and on SIGHUP, as
    are all files of keys and tokens."""
    tls_key: Path | None = None
    """The private key of ``tls_cert``, not encrypted."""
    tls_client_ca: Path | None = None
    """The roots of client certificates: clients need one, and the name in it is their user."""
    tls_client_certs: Literal["required", "optional"] = "required"
    """With ``optional``, clients may have a token instead of a certificate."""
    tokens: Path | None = None
    """The token file, as ``nyala token create`` writes it: clients need a token."""
    jwks: Path | None = None
    """The public keys of an identity provider, as a JWK set: clients may have a JWT as their token."""
    jwt_issuer: str | None = None
    """The issuer (iss) of JWTs."""
    jwt_audience: str | None = None
    """The audience (aud) of JWTs: this server's name at the provider."""
    jwt_algorithms: Annotated[tuple[JwtAlgorithm, ...], BeforeValidator(listed)] = ("RS256", "ES256", "EdDSA")
    """The algorithms of JWTs that are accepted, separated by commas."""
    handshake_seconds: int = Field(default=0, ge=0, le=86_400)
    """How long the tokens are valid that the handshake of Flight issues for a user with a token as the password: for
    drivers that support no other login. 0: there is no handshake."""
    admins: Annotated[tuple[str, ...], BeforeValidator(listed)] = ()
    """Users who may do everything without any grant, separated by commas; so may tokens with the role admin. Each is
    ``token:USER``, ``jwt:USER`` or ``certificate:USER``; a bare ``USER`` if the server has one of these sources."""
    audit_log: Path | None = None
    """A file for JSON lines of changes to tables and grants, administration, and denials."""
    audit_log_bytes: int = Field(default=16 << 20, ge=4096)
    """The size at which the audit log becomes PATH.1, and a new one begins."""
    audit_log_files: int = Field(default=10, ge=1, le=1000)
    """How many files of the audit log are kept, the current one included."""
    traces: str | None = Field(default=None, pattern="^https?://[^/]")
    """The collector of OpenTelemetry that gets a span of each request: its endpoint for OTLP over HTTP, such as
    ``http://127.0.0.1:4318``. By default there are no traces."""
    cluster_token_file: Path | None = None
    """A file with the token by which this server logs in to the others of its placement."""
    cluster_tls_roots: Path | None = None
    """The roots of the certificates of these servers; default: the system's."""

    @property
    def names(self) -> list[str]:
        """The names, one after the other."""
        return listed(self.name) if self.name else []

    @property
    def has_tls(self) -> bool:
        """Whether the server encrypts its connections."""
        return any((self.tls_cert, self.tls_key, self.tls_client_ca))

    @property
    def has_authentication(self) -> bool:
        """Whether the server asks who calls."""
        return any((self.tokens, self.jwks, self.tls_client_ca))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a server: its declaration and its meaning."""

    model: type[BaseModel]
    field: str

    @property
    def about(self) -> str:
        """Its meaning."""
        return _abouts(self.model)[self.field]


@dataclass(frozen=True, slots=True)
class Given:
    """The value of a setting and where it was set, as text."""

    value: Any
    where: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a server, checked."""

    serve: ServeOptions
    server: ServerConfig
    store: dict[str, Any]
    """Fields of ``StoreOptions``, without the placement."""
    given: Mapping[str, Given]
    models: Mapping[type[BaseModel], BaseModel]

    def shown(self) -> list[Shown]:
        """Return all settings, without secrets."""
        return [self._shown(name) for name in known()]

    def text(self, only_given: bool = False) -> str:
        """Return all settings, or those that are set, as a TOML file, with their meanings and where they were set. What
        has a secret is left out."""
        shown = [each for each in self.shown() if each.where is not None or not only_given]
        limits = [each for each in shown if each.name.startswith(LIMITS)]
        lines = [line for each in shown if each not in limits for line in each.lines(each.name)]
        if limits:
            lines += ["[limits]", ""]
        return "\n".join(lines + [line for each in limits for line in each.lines(each.name.removeprefix(LIMITS))])

    def _shown(self, name: str) -> Shown:
        setting, given = known()[name], self.given.get(name)
        value = to_jsonable_python(getattr(self.models[setting.model], setting.field))
        return Shown(name, _without_secrets(name, value), given.where if given else None, setting.about)


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting of the server as users see it."""

    name: str
    value: Any
    where: str | None
    """Where it was set; None: nowhere, it has its default."""
    about: str

    @property
    def text(self) -> str:
        """The value as in a file."""
        return json.dumps(self.value, ensure_ascii=False)

    def lines(self, key: str) -> Iterator[str]:
        """Yield the lines of a TOML file that set it under ``key``."""
        yield from (f"# {line}" for line in textwrap.wrap(self.about, 100))
        is_left_out = self.value is None or (isinstance(self.value, str) and _HIDDEN in self.value)
        told = f"# {key} = {self.value or ''}".rstrip() if is_left_out else f"{key} = {self.text}"
        yield told + (f"  # {self.where}" if self.where else "")
        yield ""


def _without_secrets(name: str, value: Any) -> Any:
    """Return a value to be shown: without commands that may have passwords in them, nor those of a URI."""
    if isinstance(value, list | tuple):
        return [_without_secrets(name, each) for each in value]
    if not isinstance(value, str) or not value:
        return value
    if name in _SECRET:
        return _HIDDEN
    return re.sub("([?#]).*", rf"\1{_HIDDEN}", re.sub("://.*@", f"://{_HIDDEN}@", value)) if "://" in value else value


@cache
def known() -> dict[str, Setting]:
    """Return all settings by their names."""
    found = {name: Setting(ServeOptions, name) for name in ServeOptions.model_fields}
    left_out = {"private_paths", "placement", "server", "limits", "key"}
    for model in (ServerConfig, StoreOptions):
        for name in model.model_fields:
            if name not in left_out:
                assert name not in found, name
                found[name] = Setting(model, name)
    return found | {LIMITS + name: Setting(Limits, name) for name in Limits.model_fields}


def read_settings(
    flags: Mapping[str, Any], assignments: Sequence[str], environment: Mapping[str, str], file: Path | None
) -> Settings:
    """Return the settings of a server. ``flags`` and ``assignments`` (name=value) come from the command line.

    Raises:
        InvalidArgumentError: a name is unknown or a value invalid; the message says where it was set.
        NotFoundError: the file does not exist.
    """
    path = file or (Path(named) if (named := environment.get(f"{ENVIRONMENT}CONFIG")) else None)
    given: dict[str, Given] = {}
    if path is not None:
        given |= _from_file(path)
    flagged = {name: Given(value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None}
    for nearer in (_from_environment(environment), flagged, _from_assignments(assignments)):
        if not nearer.keys().isdisjoint(_KEY_SOURCES):  # one of these takes the place of the other
            given = {name: each for name, each in given.items() if name not in _KEY_SOURCES}
        given |= nearer
    return _checked(given)


def _from_assignments(assignments: Sequence[str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for text in assignments:
        name, found, value = text.partition("=")
        if not found:
            raise InvalidArgumentError(f"--set {text!r} is not of the form name=value")
        _check_known(name, "--set")
        given[name] = Given(value, "--set")
    return given


def _from_file(path: Path) -> dict[str, Given]:
    try:
        said = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} is not TOML: {error}") from None
    limits = said.pop("limits", {})
    if not isinstance(limits, dict):
        raise InvalidArgumentError(f"{path}: limits must be a TOML table, [limits], with the limits of the store")
    said |= {f"{LIMITS}{name}": value for name, value in limits.items()}
    for name in said:
        _check_known(name, str(path))
    return {name: Given(value, str(path)) for name, value in said.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for variable, value in environment.items():
        name = variable.removeprefix(ENVIRONMENT).lower()
        if not variable.startswith(ENVIRONMENT) or name in _OTHER_VARIABLES or not value:
            continue
        if name in known():
            given[name] = Given(value, variable)
        elif near := difflib.get_close_matches(name, known(), 1, _NEAR):
            raise InvalidArgumentError(f"unknown option {variable}; did you mean {ENVIRONMENT}{near[0].upper()}?")
    return given


def _check_known(name: str, where: str) -> None:
    if name in known():
        return
    near = difflib.get_close_matches(name, known(), 1, 0.0)[0]
    raise InvalidArgumentError(
        f"{where}: unknown option {name.removeprefix(LIMITS)!r}; did you mean {near.removeprefix(LIMITS)!r}? "
        "`nyala config show` lists all options"
    )


def _checked(given: dict[str, Given]) -> Settings:
    parts = {model: _values(given, model) for model in (ServeOptions, ServerConfig, StoreOptions, Limits)}
    serve = _made(ServeOptions, parts[ServeOptions], given)
    limits = _made(Limits, parts[Limits], given)
    store = parts[StoreOptions] | ({"limits": limits} if parts[Limits] else {})
    if serve.memory_mb is not None and "budget_bytes" not in store:
        store["budget_bytes"] = serve.memory_mb << 20
    if store.get("budget_bytes") is None:
        store["budget_bytes"] = max(usable_memory() // _SERVER_SHARE, BUDGET_MIN)
    store["budget_bytes"] = _whole(store["budget_bytes"])
    server, options = _made(ServerConfig, parts[ServerConfig], given), _made(StoreOptions, store, given)
    models = {ServeOptions: serve, ServerConfig: server, StoreOptions: options, Limits: limits}
    return Settings(serve, server, store, given, models)


def _whole(value: Any) -> Any:
    """Return a number given as text as a number: other values are derived from it before validation."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _values(given: Mapping[str, Given], model: type[BaseModel]) -> dict[str, Any]:
    settings = known()
    return {settings[name].field: each.value for name, each in given.items() if settings[name].model is model}


def _made(model: type[Any], values: dict[str, Any], given: Mapping[str, Given]) -> Any:
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        name = LIMITS + field if model is Limits else field
        where = f" (from {given[name].where})" if name in given else ""
        value = _without_secrets(name, first["input"])
        raise InvalidArgumentError(f"invalid {name} = {value!r}{where}: {first['msg']}") from None


@cache
def _abouts(model: type[BaseModel]) -> dict[str, str]:
    """Return the fields of a model with the docstrings below them. It reads the source, and so only to show them:
    pydantic would do it at every import."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    name = ""
    for line in body.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name = line.target.id
            found[name] = ""
        elif name and isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
            found[name] = " ".join(str(line.value.value).split())
    return found
