"""Which buckets URLs name; what obstore is asked, and what of its errors is told."""

import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from nyala.engine.bucket import Bucket, Patience, bucket_of, hurried, probe
from nyala.engine.bucket.opening import bucket_of_both
from nyala.engine.home.opening import home_at
from nyala.engine.mvcc.clock import elapsed_seconds
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from tests.doubles.s3_server import KEYS, url_of

SOON = Patience(0.5, 0.05, 0.1)


pytestmark = pytest.mark.usefixtures("keys")


def test_a_bucket_in_memory_is_found_by_its_name() -> None:
    bucket_of("memory://one").put("a", b"x")
    assert bucket_of("memory://one").get("a") == b"x"
    assert bucket_of("memory://two").list("") == []
    bucket_of("memory://one").delete(["a"])


def test_a_directory(tmp_path: Path) -> None:
    bucket = bucket_of(f"file://{tmp_path}/place")
    probe(bucket, "1")
    bucket.put("log/1", b"x")
    assert (tmp_path / "place/log/1").read_bytes() == b"x"
    assert repr(bucket) == f"DirectoryBucket(LocalFileSystem('{tmp_path}/place'))"


@pytest.mark.parametrize(
    "url",
    ["", "bucket", "s3://", "s3:bucket", "ftp://bucket/root", "file://host/path", "file:///", "memory://a/b", "/data"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        bucket_of(url)
    assert refused.value.message.startswith(f"{url} is not a bucket: give s3://bucket/root")


@pytest.mark.parametrize("root", ["a//b", "../up", "a b", ".hidden"])
def test_roots_are_names(root: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a valid name of an object"):
        bucket_of(f"s3://bucket/{root}")


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hush@bucket/root",
        "s3://bucket/root?secret_access_key=hush",
        "az://c/root?sas_key=hush",
        "s3://bucket/root?endpoint=http://user:hush@localhost:9000",
        "s3://bucket/root?endpoint=http%3A%2F%2Fuser%3Ahush%40localhost&region=z",
        "s3://bucket/root?endpoint=user:hush@localhost",
    ],
)
def test_secrets_do_not_belong_into_a_url(url: str) -> None:
    for opening in (bucket_of, lambda url: home_at(url, "a")):
        with pytest.raises(InvalidArgumentError, match="environment") as caught:
            opening(url)
        assert "hush" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="needs a name") as caught:
        home_at(url, None)
    assert "hush" not in str(caught.value)


def test_a_place_in_a_bucket(address: str) -> None:
    bucket, other = bucket_of(url_of(address, "deep/root")), bucket_of(url_of(address, "deep"))
    bucket.put("log/1", b"x")
    assert other.list("") == [("root/log/1", 1)]
    assert repr(bucket) == "ObstoreBucket(s3://bucket/deep/root)"
    other.delete(["root/log/1"])


def test_contents_that_are_put_in_parts(address: str) -> None:
    bucket = bucket_of(url_of(address, "parts"))
    content = bytes(range(256)) * (1 << 18) + b"and the rest"
    bucket.put("large", content)
    assert bucket.size("large") == len(content)
    assert bucket.get_range("large", (64 << 20) - 3, 15) == b"\xfd\xfe\xffand the rest"
    bucket.delete(["large"])


def test_a_large_object_is_created_in_one_request(address: str) -> None:
    """A put in parts knows no condition."""
    bucket = bucket_of(url_of(address, "create"))
    assert bucket.create("log/1", bytes(9 << 20))
    assert not bucket.create("log/1", bytes(10 << 20))
    assert bucket.size("log/1") == 9 << 20


def test_a_missing_bucket_is_told(address: str) -> None:
    bucket = bucket_of(f"s3://nowhere/root?endpoint={address}&region=us-east-1", SOON)
    for call in (
        lambda: bucket.list(""),
        lambda: probe(bucket, "1"),
        lambda: bucket.get("a"),
        lambda: bucket.put("a", b""),
    ):
        with pytest.raises(UnavailableError, match=r"s3://nowhere/root.*404 Not Found NoSuchBucket"):
            call()


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidArgumentError, match=r"pip install 'nyala\[bucket\]'"):
        bucket_of("s3://bucket/root")


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = "import sys, nyala.engine.bucket; print('obstore' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


class _Refusing(BaseHTTPRequestHandler):
    """Answers every request with an error that repeats all it was told, as some do."""

    requests: list[str]
    status = 403

    def do_GET(self) -> None:
        type(self).requests.append(self.command)
        body = f"<Error><Code>AccessDenied</Code><Message>{self.headers}{KEYS}</Message></Error>".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_DELETE = do_GET

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def refuser(status: int) -> Iterator[tuple[Bucket, list[str]]]:
    """Yield a bucket that answers each request with an error, and the requests that it got."""
    handler = type("Refusing", (_Refusing,), {"requests": [], "status": status})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield bucket_of(url_of(f"http://127.0.0.1:{server.server_port}"), SOON), handler.requests
    server.shutdown()
    server.server_close()


@pytest.fixture(params=[403, 500])
def refusing(request: pytest.FixtureRequest) -> Iterator[tuple[Bucket, list[str]]]:
    with refuser(request.param) as bucket_and_requests:
        yield bucket_and_requests


def test_errors_tell_no_secrets(refusing: tuple[Bucket, list[str]]) -> None:
    bucket, _ = refusing
    for call in (lambda: bucket.get("a"), lambda: bucket.put("a", b"x"), lambda: bucket.create("a", b"x")):
        with pytest.raises(UnavailableError) as caught:
            call()
        told = "".join(traceback.format_exception(caught.value))
        assert "AccessDenied" in told
        assert "never-to-be-told" not in told and "Signature" not in told and "127.0.0.1" not in str(caught.value)


def test_the_library_repeats_nothing_by_itself(refusing: tuple[Bucket, list[str]]) -> None:
    bucket, requests = refusing
    objects = bucket.objects  # pyright: ignore[reportAttributeAccessIssue]
    for number, call in enumerate((lambda: objects.put_if_absent("a", b"x"), lambda: objects.get("a")), 1):
        with pytest.raises(OSError):
            call()
        assert len(requests) == number


FORKED = """
import os, sys
from nyala.engine.bucket import bucket_of
bucket = bucket_of(sys.argv[1])
if sys.argv[2] == "late":
    bucket.list("")
if os.fork() == 0:
    try:
        print(bucket.list(""), flush=True)
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
print(bucket.list(""))
"""


@pytest.mark.parametrize("when", ["soon", "late"])
def test_threads_do_not_survive_a_fork(address: str, when: str) -> None:
    bucket_of(url_of(address, "forked")).put("a", b"x")
    command = [sys.executable, "-c", FORKED, url_of(address, "forked"), when]
    child, parent = subprocess.check_output(command, text=True, timeout=60).splitlines()
    assert parent == "[('a', 1)]"
    assert child == parent if when == "soon" else "this process was forked from one that had used a bucket" in child


def test_a_store_that_says_nothing_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"s3://bucket/root?endpoint=http://127.0.0.1:{server.getsockname()[1]}&region=us-east-1"
        bucket = hurried(bucket_of(url), 0.2)
        began = elapsed_seconds()
        for call in (lambda: bucket.get("a"), lambda: bucket.create("a", b"x"), lambda: bucket.size("a")):
            with pytest.raises(UnavailableError):
                call()
        assert elapsed_seconds() - began < 20, "a large object may take longer than two minutes"


def test_a_bucket_of_both_is_found_where_one_request_reaches_both() -> None:
    assert bucket_of_both("memory://x", "memory://y") is None
    assert bucket_of_both("file:///a", "file:///b") is None
    one = bucket_of_both("memory://x", "memory://x")
    assert one is not None and one[1:] == ("", "")
    assert bucket_of_both("s3://one/a?region=r", "s3://two/a?region=r") is None
    assert bucket_of_both("s3://one/a?region=r", "s3://one/a?region=q") is None
    pytest.importorskip("obstore")
    both = bucket_of_both("s3://one/a/b?region=r", "s3://one?region=r")
    assert both is not None and both[1:] == ("a/b/", "")
