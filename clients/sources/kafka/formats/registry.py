"""A registry of schemas, asked over HTTP once for each schema."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from .....schemas.errors import InvalidArgumentError, PermissionDeniedError, UnavailableError

_SECONDS = 10.0
_NOT_THERE = 404
_REFUSED = (401, 403)


class UnknownSchemaError(Exception):
    """The registry has no schema of that number."""


class Registry:
    """The schemas of Confluent's registry, or of one that speaks as it does, such as Apicurio's or Karapace."""

    def __init__(self, url: str) -> None:
        """Raises InvalidArgumentError: it is no URL."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentError("give the registry of schemas as http://host:8081")
        self._shown = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        self._base = f"{self._shown}{parts.path.rstrip('/')}"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if parts.username:
            user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._schemas: dict[int, Any] = {}

    def schema(self, number: int) -> Any:
        """Return the schema with a number, with those that it refers to before it in a list, if there are some.

        Raises:
            UnknownSchemaError: there is none.
            UnavailableError: the registry does not answer now.
        """
        if number not in self._schemas:
            answer = self._ask(f"/schemas/ids/{number}", f"schema {number}")
            if (kind := answer.get("schemaType", "AVRO")) != "AVRO":
                raise UnknownSchemaError(f"schema {number} of the registry is {kind}, not AVRO")
            names: dict[str, Any] = {}
            self._referred(answer.get("references") or [], names)
            schema = json.loads(answer["schema"])
            self._schemas[number] = [*names.values(), schema] if names else schema
        return self._schemas[number]

    def _referred(self, references: list[Any], names: dict[str, Any]) -> None:
        """Add the schemas that others refer to, the inner ones first."""
        for each in references:
            if each["name"] not in names:
                subject = urllib.parse.quote(each["subject"], safe="")
                answer = self._ask(f"/subjects/{subject}/versions/{each['version']}", f"the schema {each['subject']!r}")
                self._referred(answer.get("references") or [], names)
                names[each["name"]] = json.loads(answer["schema"])

    def _ask(self, path: str, thing: str) -> Any:
        request = urllib.request.Request(f"{self._base}{path}", headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            if error.code == _NOT_THERE:
                raise UnknownSchemaError(f"{thing} is not in the registry") from None
            if error.code in _REFUSED:
                raise PermissionDeniedError(f"the registry {self._shown} refuses {thing}: HTTP {error.code}") from None
            raise UnavailableError(f"the registry {self._shown} answers with HTTP {error.code}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UnavailableError(f"the registry {self._shown} does not answer: {reason}") from None
