"""Several threads of one client follow its store at once."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

import nyala
from nyala.clients.flight import holder_client
from nyala.clients.flight.credentials import Credentials
from nyala.clients.flight.holder_client import HolderClient
from nyala.schemas.errors import UnavailableError
from tests.clients.flight.test_following import inserted, pair
from tests.doubles.pair import Pair
from tests.doubles.waiting import until

__all__ = ["pair"]


def test_several_threads_follow_at_once(pair: Pair) -> None:
    wrong: list[BaseException] = []
    with nyala.connect(pair.url) as db:
        table = db.table("rows")

        def work(thread: int) -> None:
            try:
                for number in range(60):
                    key = 10_000 * (thread + 1) + number
                    table.insert([{"id": key, "v": number}])
                    assert table.get(key) == {"id": key, "v": number}
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for turn in range(6):
            time.sleep(0.05)
            pair.give_to(pair.second if turn % 2 == 0 else pair.first)
            if turn % 3 == 0:
                pair.first.cut()
        for thread in threads:
            thread.join(60)
    assert not wrong
    assert len(inserted(pair)) == len(set(inserted(pair))) == 360


def test_threads_that_find_nobody_do_not_wait_one_after_the_other(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 8
    client = HolderClient([pair.first.url], lambda location: Credentials().connect(location, []))
    pair.give_to(None)
    searches: list[int] = []
    errors: list[str] = []
    asked = client._asked

    def counted(locations: Any) -> Any:
        if locations and not searches:
            searches.append(1)
            until(lambda: len(waiting) == count)
        elif locations:
            searches.append(1)
        return asked(locations)

    monkeypatch.setattr(client, "_asked", counted)
    waiting: set[int] = set()
    now = time.monotonic

    def look() -> None:
        with pytest.raises(UnavailableError, match="no process has the store") as found:
            client.follow()
        errors.append(found.value.message)

    def monotonic() -> float:
        began = now()
        waiting.add(threading.get_ident())  # the first thing that a search does
        return began

    monkeypatch.setattr(holder_client, "time", SimpleNamespace(monotonic=monotonic))
    threads = [threading.Thread(target=look) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == count and len(set(errors)) == 1
    assert len(searches) <= 2, "that which was under way, and one for all who waited for it"
    client.close()
