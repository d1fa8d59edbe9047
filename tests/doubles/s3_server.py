"""A server that plays S3, and keeps its word on put-if-absent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "never-to-be-told"}
BUCKET = "bucket"


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server with one bucket, ``BUCKET``; yield its address, as in ``http://127.0.0.1:1234``."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with patch.object(S3Response, "put_object", _one_at_a_time(S3Response.put_object)):
        server.start()
        try:
            host, port = server.get_host_and_port()
            _make_bucket(f"http://{host}:{port}")
            yield f"http://{host}:{port}"
        finally:
            server.stop()


def url_of(address: str, root: str = "root") -> str:
    """Return the URL of a place in the server's bucket; the keys go to the environment."""
    return f"s3://{BUCKET}/{root}?endpoint={address}&region=us-east-1"


def _one_at_a_time(put_object):
    """moto looks whether the object is there, and then puts it, without a lock."""
    mutex = threading.Lock()

    def locked(response: S3Response):
        with mutex:
            return put_object(response)

    return locked


def _make_bucket(address: str) -> None:
    import urllib.request

    request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def main() -> None:
    """Run the server in this process until it is killed; print where it is."""
    with s3_server() as address:
        print(json.dumps({"address": address}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
