"""URIs in messages never show their secrets."""

from __future__ import annotations

import pytest

from nyala.clients.jobs.folder import Folder
from nyala.engine.bucket.opening import bucket_of
from nyala.engine.fs.arrow import ArrowFileSystem
from nyala.flight_server.settings.settings import read_settings
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.uri import shown_uri

URIS = [
    "s3://key:geheim@bucket/x?bogus=1",
    "s3://key:geh/eim@bucket/x",
    "s3://key:ge heim@bucket/x",
    "abfs://account@container/x?geheim=1",
    "ftp://user:geheim@host/x",
    "ftp://geheim@host/x#geheim",
    "s3://geheim@?geheim",
]


@pytest.mark.parametrize("uri", URIS)
def test_errors_about_a_place_show_no_secret(uri: str) -> None:
    for opening in (ArrowFileSystem.from_uri, Folder.at, bucket_of):
        with pytest.raises(InvalidArgumentError) as caught:
            opening(uri)
        assert "heim" not in caught.value.message.replace("'geheim'", ""), opening
        assert uri.partition(":")[0] in caught.value.message
    settings = read_settings({}, [f"import_storage={uri}"], {}, None)
    shown = settings.text()
    assert "import_storage" in shown and "heim" not in shown


def test_a_shown_uri_keeps_its_place() -> None:
    assert shown_uri("s3://key:a/b@bucket/x/y?region=z#f") == "s3://bucket/x/y"
    assert shown_uri("/srv/me@work/x") == "/srv/me@work/x"
