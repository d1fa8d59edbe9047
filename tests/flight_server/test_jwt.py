"""JWTs: which are accepted, and the many that are not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.utils import base64url_encode

import nyala
from nyala.flight_server.security import jwt_tokens
from nyala.flight_server.security.identity import Identity
from nyala.flight_server.security.jwt_tokens import JwtTokens
from nyala.flight_server.security.security import Security
from nyala.flight_server.settings.settings import ServeOptions, read_settings
from nyala.schemas.errors import InvalidArgumentError, UnauthenticatedError
from nyala.schemas.table.table import TableDefinition
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import SCHEMA, Served

ISSUER, AUDIENCE = "https://login.example", "nyala"
KEYS: dict[str, Any] = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "ed": ed25519.Ed25519PrivateKey.generate(),
}
ALGORITHM = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}


def public(kid: str, key: Any) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name(
        "RS256"
        if isinstance(key, rsa.RSAPrivateKey)
        else "ES256"
        if isinstance(key, ec.EllipticCurvePrivateKey)
        else "EdDSA"
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}  # pyright: ignore[reportArgumentType]


def write(path: Path, keys: dict[str, Any]) -> None:
    path.write_text(json.dumps({"keys": [public(kid, key) for kid, key in keys.items()]}))


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    write(path, KEYS)
    return path


@pytest.fixture
def tokens(jwks: Path) -> JwtTokens:
    return JwtTokens(jwks, ISSUER, AUDIENCE, ("RS256", "ES256", "EdDSA"))


def claims(**others: Any) -> dict[str, Any]:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 600, "roles": ["writer"]} | others
    return {name: value for name, value in said.items() if value is not None}


def signed(
    kid: str = "ec", key: Any = None, algorithm: str = "", head: dict[str, Any] | None = None, **said: Any
) -> str:
    return jwt.encode(claims(**said), key or KEYS[kid], algorithm or ALGORITHM[kid], {"kid": kid} | (head or {}))


@pytest.mark.parametrize("kid", KEYS)
def test_a_signed_token_names_its_user(tokens: JwtTokens, kid: str) -> None:
    for _ in range(2):  # verified, then remembered
        found = tokens.identity(signed(kid, exp=2_000_000_000_000 // 1000))
        assert (found.user, found.roles, found.is_valid) == ("alice", {"writer"}, True)
    assert tokens.identity(signed(kid, aud=["other", AUDIENCE], nbf=int(time.time()) + 30)).user == "alice"


def _hs256_with_public_key() -> str:
    pem = (
        KEYS["rsa"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    head = base64url_encode(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "rsa"}).encode())
    body = base64url_encode(json.dumps(claims()).encode())
    mac = jwt.get_algorithm_by_name("HS256").sign(head + b"." + body, pem)
    return b".".join((head, body, base64url_encode(mac))).decode()


def _tampered() -> str:
    head, _, mac = signed().split(".")
    return f"{head}.{base64url_encode(json.dumps(claims(sub='root')).encode()).decode()}.{mac}"


BAD: dict[str, Callable[[], str]] = {
    "no algorithm": lambda: jwt.encode(claims(), "", "none", {"kid": "ec"}),
    "HMAC with the public key": _hs256_with_public_key,
    "HMAC with a secret": lambda: signed(key="x" * 32, algorithm="HS256"),
    "an algorithm not listed": lambda: signed("rsa", algorithm="RS512"),
    "the algorithm of another key": lambda: signed("rsa", key=KEYS["ec"], algorithm="ES256"),
    "another's key": lambda: signed(key=ec.generate_private_key(ec.SECP256R1())),
    "an unknown key": lambda: signed(head={"kid": "x"}),
    "no key": lambda: jwt.encode(claims(), KEYS["ec"], "ES256"),
    "a critical extension": lambda: signed(head={"crit": ["exp"]}),
    "another's claims": _tampered,
    "no signature": lambda: signed().rpartition(".")[0] + ".",
    "expired": lambda: signed(exp=int(time.time()) - 61),
    "no expiry": lambda: signed(exp=None),
    "not valid yet": lambda: signed(nbf=int(time.time()) + 90),
    "another issuer": lambda: signed(iss="https://evil.example"),
    "no issuer": lambda: signed(iss=None),
    "another audience": lambda: signed(aud="other"),
    "no audience": lambda: signed(aud=None),
    "no user": lambda: signed(sub=None),
    "a user with a line end": lambda: signed(sub="alice\nINFO bob"),
    "an empty user": lambda: signed(sub=""),
    "roles that are none": lambda: signed(roles="writer"),
    "a deep header": lambda: base64url_encode(b"[" * 5000).decode() + ".e30.AAAA",
    "an endless expiry": lambda: signed(exp=10**400),
    "no JWT": lambda: "a.b.c",
    "nothing": lambda: "",
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_token_is_rejected(tokens: JwtTokens, case: str) -> None:
    token = BAD[case]()
    with pytest.raises(UnauthenticatedError, match="the token is not valid here: it") as caught:
        tokens.identity(token)
    assert len(token) < 40 or token[-20:] not in str(caught.value)


def test_rotated_keys_are_loaded_and_old_ones_end(tokens: JwtTokens, jwks: Path) -> None:
    old: Identity = tokens.identity(signed("ec"))
    kept: Identity = tokens.identity(signed("rsa"))
    new = ec.generate_private_key(ec.SECP256R1())
    write(jwks, {"new": new, "rsa": KEYS["rsa"]})
    assert tokens.identity(jwt.encode(claims(), new, "ES256", {"kid": "new"})).user == "alice"
    assert kept.is_valid and not old.is_valid
    with pytest.raises(UnauthenticatedError):
        tokens.identity(signed("ec"))
    write(jwks, {"new": KEYS["ec"]})  # another key of the same name
    tokens.files.refresh()
    with pytest.raises(UnauthenticatedError, match="signature is wrong"):
        tokens.identity(jwt.encode(claims(), new, "ES256", {"kid": "new"}))


def test_a_running_call_ends_with_its_key_even_if_forgotten(
    tokens: JwtTokens, jwks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwt_tokens, "_KNOWN_MAX", 2)
    first: Identity = tokens.identity(signed("ec", sub="first"))
    for number in range(3):
        assert tokens.identity(signed("ec", sub=f"user-{number}")).is_valid
    assert tokens.identity(signed("rsa")).is_valid
    write(jwks, {"rsa": KEYS["rsa"]})
    tokens.files.refresh()
    assert first.is_revoked


WRONG_FILES = {
    "empty": "",
    "no set": "{}",
    "no keys": '{"keys": []}',
    "a secret": '{"keys": [{"kty": "oct", "k": "AAAA", "kid": "a"}]}',
    "a deep one": "[" * 100_000,
    "an id that is a list": json.dumps({"keys": [public("a", KEYS["ec"]) | {"kid": ["a"]}]}),
}


@pytest.mark.parametrize("content", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_rejected(tmp_path: Path, content: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"jwks\.json"):
        JwtTokens(path, ISSUER, AUDIENCE, ("ES256",))


def test_a_server_takes_them(serve: Callable[..., Served], jwks: Path) -> None:
    store = FakeStore()
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    options = ServeOptions(jwks=jwks, jwt_issuer=ISSUER, jwt_audience=AUDIENCE, admins=("alice",))
    served = serve(store, None, Security(options))
    with nyala.connect(served.url, token=signed) as db:
        assert db.tables() == ["homes"]
    with pytest.raises(UnauthenticatedError, match="has expired"):
        nyala.connect(served.url, token=signed(exp=1))
    with pytest.raises(UnauthenticatedError, match="is unknown"):
        nyala.connect(served.url, token="nyala_" + "0" * 12 + "_" + "A" * 43)


def test_a_file_that_others_can_write_to_is_rejected(jwks: Path) -> None:
    jwks.chmod(0o666)
    with pytest.raises(InvalidArgumentError, match="other users can write"):
        JwtTokens(jwks, ISSUER, AUDIENCE, ("ES256",))


def test_a_file_of_another_user_is_rejected(jwks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        os.chown(jwks, 12345, -1)
    with pytest.raises(InvalidArgumentError, match="belongs to the user"):
        JwtTokens(jwks, ISSUER, AUDIENCE, ("ES256",))


def test_options(jwks: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="need jwt_issuer and jwt_audience"):
        Security(ServeOptions(jwks=jwks))
    found = read_settings({}, ["jwt_algorithms=ES256, EdDSA"], {}, None)
    assert found.serve.jwt_algorithms == ("ES256", "EdDSA")
    for secret in ("HS256", "none"):
        with pytest.raises(InvalidArgumentError, match="jwt_algorithms"):
            read_settings({}, [f"jwt_algorithms={secret}"], {}, None)
