"""Connections are kept by process: by jobs and by Spark, which look for them in one place."""

from __future__ import annotations

import os

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.per_process import all_servers_at, server_at
from nyala.clients.jobs.link import StoreLink


def test_jobs_and_spark_share_one_connection_of_a_process(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server_at(url)
    assert server_at(url) is first
    assert all_servers_at(url) is first, "a server that shares no tables is all there is"
    assert StoreLink.to(url).service is first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    forked = server_at(url)
    assert forked is not first and StoreLink.to(url).service is forked


def test_a_job_does_not_wait_for_a_server_that_is_not_there() -> None:
    with pytest.raises(nyala.UnavailableError, match=r"127\.0\.0\.1:1"):
        StoreLink.to("grpc://127.0.0.1:1").service.tables()


def test_a_job_runs_through_the_kept_connection(embedded: Database, url: str) -> None:
    embedded.create_table("t", data={"k": [1, 2], "v": [3, 4]}, primary_key=["k"])
    assert nyala.jobs.checksum(url, "t", show="off").rows == 2
