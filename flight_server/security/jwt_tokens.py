"""JWTs: tokens that an identity provider signs, verified by its public keys in a file (a JWK set, RFC 7517).

Only algorithms with a public and a private key are accepted (RFC 8725): a server that also took HMAC could be given a
token signed with its public key as the secret.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakSet

import jwt

from ...schemas.errors import InvalidArgumentError, NotFoundError, UnauthenticatedError
from .file_watch import WatchedFiles
from .identity import Identity, Source
from .token_file import read_guarded

SKEW_SECONDS = 60
"""How far the clocks of the provider and of this server may differ."""
_NAME_MAX = 128
_KNOWN_MAX = 4096
_ALGORITHMS_OF = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not valid yet"),
    (jwt.InvalidAudienceError, "it is for another audience"),
    (jwt.InvalidIssuerError, "it is from another issuer"),
    (jwt.MissingRequiredClaimError, "it lacks exp, iss, aud or sub"),
    (jwt.InvalidSignatureError, "its signature is wrong"),
    (jwt.InvalidAlgorithmError, "its algorithm is not allowed"),
)


class JwtTokens:
    """Verifies the JWTs of callers, which one identity provider signs. Thread safe."""

    def __init__(self, path: Path, issuer: str, audience: str, algorithms: tuple[str, ...]) -> None:
        """Raises StoreError if the file is not a JWK set."""
        self._path = path
        self._issuer = issuer
        self._audience = audience
        self._algorithms = algorithms
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._texts: Mapping[str | None, str] = {}
        self._known: dict[bytes, Identity] = {}
        self._of_keys: dict[str | None, WeakSet[Identity]] = {}
        """All identities in use, also those forgotten by ``_known``: calls that run hold them."""
        self._lock = threading.Lock()
        self.files = WatchedFiles("keys of JWTs", [path], self._load)

    def identity(self, token: str) -> Identity:
        """Return whose token it is.

        Raises:
            UnauthenticatedError: it is not valid; the message says why.
        """
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        try:
            head = jwt.get_unverified_header(token)
            if head.get("kid") not in self._keys:
                self.files.refresh()  # the provider may have rotated its keys
            with self._lock:
                identity = self._verified(token, head)
                self._remember(digest, head.get("kid"), identity)
        except (jwt.PyJWTError, TypeError, ValueError, RecursionError, OverflowError) as error:
            why = next((why for kind, why in _REASONS if isinstance(error, kind)), "it is not a valid JWT")
            raise UnauthenticatedError(f"the token is not valid here: {why}") from None
        return identity

    def _verified(self, token: str, head: Mapping[str, Any]) -> Identity:
        """Return what a token says. Raises as PyJWT, whose messages may have parts of it."""
        key, algorithm = self._keys.get(head.get("kid")), head.get("alg")
        if "crit" in head or key is None:
            raise jwt.InvalidSignatureError
        fitting = _ALGORITHMS_OF.get(key.key_type or "", ())
        if algorithm not in self._algorithms or algorithm not in fitting:
            raise jwt.InvalidAlgorithmError
        said = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            issuer=self._issuer,
            audience=self._audience,
            leeway=SKEW_SECONDS,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        user, roles = said["sub"], said.get("roles", [])
        if not isinstance(roles, list) or not all(_is_name(each) for each in (user, *roles)):
            raise jwt.InvalidTokenError
        return Identity(user, frozenset(roles), float(said["exp"]) + SKEW_SECONDS, Source.JWT)

    def _remember(self, digest: bytes, kid: str | None, identity: Identity) -> None:
        if len(self._known) >= _KNOWN_MAX:
            now = time.time()
            self._known = {each: found for each, found in self._known.items() if found.expires > now}
            if len(self._known) >= _KNOWN_MAX:
                self._known = {}
        self._known[digest] = identity
        self._of_keys.setdefault(kid, WeakSet()).add(identity)

    def _load(self) -> None:
        keys, texts = _read(self._path)
        with self._lock:
            gone = {kid for kid, text in self._texts.items() if texts.get(kid) != text}
            self._keys, self._texts = keys, texts
            for identity in (each for kid in gone for each in self._of_keys.pop(kid, ())):
                identity.is_revoked = True
            self._known = {digest: found for digest, found in self._known.items() if not found.is_revoked}


def _read(path: Path) -> tuple[dict[str | None, jwt.PyJWK], dict[str | None, str]]:
    """Return the keys of a file by their ids, and their texts."""
    try:
        content = json.loads(read_guarded(path))
        found = jwt.PyJWKSet.from_dict(content).keys
        keys = {key.key_id: key for key in found}
        texts = {each.get("kid"): json.dumps(each, sort_keys=True) for each in content["keys"]}
    except FileNotFoundError:
        raise NotFoundError(f"there is no JWK set {path}") from None
    except OSError as error:
        raise InvalidArgumentError(f"the JWK set {path} cannot be read: {error.strerror}") from None
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise InvalidArgumentError(f'{path} is not a JWK set: write public keys into {{"keys": [...]}}') from None
    if len(keys) < len(found) or (None in keys and len(keys) > 1):
        raise InvalidArgumentError(f"each key in {path} needs an id (kid) of its own")
    if strange := sorted({key.key_type or "" for key in found} - _ALGORITHMS_OF.keys()):
        raise InvalidArgumentError(f"{path} has a key of type {strange[0]}: only RSA, EC and OKP have public keys")
    return keys, texts


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= _NAME_MAX and text.isprintable() and text.strip() == text
