"""Administrators of the option ``admins``: each is bound to the source of its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import nyala
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.admins import Admins
from nyala.flight_server.security.identity import Identity, Source
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import InvalidArgumentError, PermissionDeniedError
from tests.doubles.certificates import Authority
from tests.flight_server.served import Served


@pytest.mark.parametrize("source", Source)
def test_an_administrator_of_one_source_is_none_of_another(source: Source) -> None:
    admins = Admins([f"{source}:root"], list(Source))
    assert [each for each in Source if admins.include(Identity("root", source=each))] == [source]
    assert not admins.include(Identity(f"{source}:root", source=source))


def test_a_bare_name_is_of_the_only_source() -> None:
    admins = Admins(["root", "urn:x"], [Source.JWT])
    assert admins.include(Identity("root", source=Source.JWT)) and admins.include(Identity("urn:x", source=Source.JWT))
    assert not admins.include(Identity("root", source=Source.CERTIFICATE))


@pytest.mark.parametrize(
    ("name", "sources", "why"),
    [
        ("root", [Source.TOKEN, Source.CERTIFICATE], "write token:root or certificate:root"),
        ("jwt:root", [Source.TOKEN], "runs without jwks"),
    ],
)
def test_a_name_without_its_source_is_refused(name: str, sources: list[Source], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        Admins([name], sources)


def test_a_token_does_not_become_the_administrator_of_a_certificate(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    authority, tokens = Authority(tmp_path), tmp_path / "tokens.json"
    pair = authority.server()
    token, _ = create_token(tokens, "root")
    options = ServeOptions(
        tls_cert=pair.certificate,
        tls_key=pair.key,
        tls_client_ca=authority.roots,
        tls_client_certs="optional",
        tokens=tokens,
        admins=("certificate:root",),
    )
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    url = serve(store, None, Security(options)).url
    with nyala.connect(url, tls_roots=authority.roots, client_cert=authority.client("root")) as db:
        db.grant("read", on="*", to="alice")
    with nyala.connect(url, tls_roots=authority.roots, token=token) as db, pytest.raises(PermissionDeniedError):
        db.grant("read", on="*", to="root")
    store.close()
