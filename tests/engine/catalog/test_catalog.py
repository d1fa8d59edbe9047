"""Tables come and go while others work."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.maintenance import upkeep
from nyala.engine.store import Store
from nyala.engine.table import table as table_module
from nyala.engine.table.direct_load import DirectLoad
from nyala.engine.table.small.row_plan import RowPlan
from nyala.engine.table.small.rows_plan import RowsPlan
from nyala.schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.transaction import StagedBatch
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.table.partition import HashLevel
from nyala.schemas.table.table import TableDefinition
from tests.engine.phases import at
from tests.engine.subject import SCHEMA, Subject, batch


def definition(name: str, **extra: object) -> TableDefinition:
    return TableDefinition.from_arrow(name, SCHEMA, ["k"]).model_copy(update=extra)


def test_names_are_taken_once() -> None:
    subject = Subject()
    with pytest.raises(AlreadyPresentError):
        subject.store.create_table(definition("t"))
    again = subject.store.create_table(definition("t", if_not_exists=True))
    assert again.table_id == subject.store.describe_table("t").table_id
    with pytest.raises(NotFoundError, match="the tables are: t"):
        subject.store.drop_table("u")
    subject.close()


def test_a_dropped_table_is_gone_with_its_files_and_its_log_records_do_no_harm() -> None:
    subject = Subject()
    subject.store.create_table(definition("gone"))
    subject.store.write(WriteCommand(table="gone"), batch([(1, 1, "")]))
    subject.store.maintain("gone", "flush")
    subject.store.write(WriteCommand(table="gone"), batch([(2, 2, "")]))
    (tablet,) = subject.store._catalog.table("gone").tablets
    scan = subject.store.scan(ScanSpec(table="gone"))
    subject.store.drop_table("gone")
    assert scan.to_reader().read_all().num_rows == 2, "a scan that was running goes on"
    assert not subject.fs.exists(f"tablets/{tablet.tablet_id}")
    with pytest.raises(UnavailableError, match="dropped"):
        upkeep.flush(tablet, subject.environment)
    subject.upsert(1)
    subject.restart()
    assert subject.store.tables() == ["t"]
    subject.store.create_table(definition("gone"))
    assert subject.store.scan(ScanSpec(table="gone")).to_reader().read_all() == pa.table(SCHEMA.empty_table())
    subject.close()


@pytest.mark.parametrize("direct", [False, True], ids=["logged", "loaded"])
@pytest.mark.parametrize(
    ("phase", "count"),
    [
        ((table_module, "route"), 100),
        ((DirectLoad, "staged"), 100),
        ((RowsPlan, "planned"), 2),
        ((RowPlan, "planned"), 1),
    ],
    ids=["route", "load", "few", "one"],
)
@pytest.mark.parametrize("keep_seconds", [0, 60])
def test_a_write_under_way_is_refused_when_its_table_is_dropped(
    monkeypatch: pytest.MonkeyPatch, direct: bool, phase: tuple[Any, str], count: int, keep_seconds: int
) -> None:
    subject = Subject(direct_load_bytes=1 if direct else 1 << 30)
    subject.store.create_table(definition("gone"))
    at(monkeypatch, phase, False, lambda: subject.store.drop_table("gone", keep_seconds))
    with pytest.raises(NotFoundError, match="dropped"):
        subject.store.write(WriteCommand(table="gone"), batch([(key, 1, "") for key in range(count)]))
    subject.upsert(1)
    subject.restart()
    subject.close()


def test_tables_come_and_go_beside_those_who_look() -> None:
    subject, stop, failures = Subject(), threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            try:
                subject.store.tables()
                subject.store._catalog.tablets()
                subject.store._operations()
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(40):
        subject.store.create_table(definition(f"x{number}"))
        if number % 2:
            subject.store.drop_table(f"x{number - 1}")
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    subject.close()


def test_a_close_waits_for_a_running_flush_and_lets_none_begin_after(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    subject.upsert(1, 2)
    writing, closing = threading.Event(), threading.Event()
    write = upkeep.flush_memrowset

    def slow(*args: object) -> object:
        writing.set()
        closing.wait(20)
        assert subject.fs.exists("lock")
        with pytest.raises(UnavailableError, match="locked"):
            Store.open(subject.fs, subject.options)
        return write(*args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(upkeep, "flush_memrowset", slow)
    flush = threading.Thread(target=subject.flush)
    flush.start()
    assert writing.wait(20)
    tablet, environment = subject.tablet, subject.environment
    threading.Timer(0.05, closing.set).start()
    subject.store.close()
    flush.join()
    with pytest.raises(UnavailableError, match="closed"):
        upkeep.flush(tablet, environment)
    with pytest.raises(UnavailableError, match="closed"):
        environment.manifest.commit(lambda manifest: manifest)
    subject.store = Store.open(subject.fs, subject.options)
    assert len(subject.tablet.version.disk) == 1
    subject.close()


def test_a_store_takes_so_many_tables_and_tablets() -> None:
    subject = Subject(limits={"tables": 3, "store_tablets": 5})
    store = subject.store
    store.create_table(definition("two", partition_by=[HashLevel(hash=["k"], buckets=2)]))
    with pytest.raises(InvalidArgumentError, match=r"have 3 tablets, and 3 more would exceed the limit of 5"):
        store.create_table(definition("three", partition_by=[HashLevel(hash=["k"], buckets=3)]))
    store.create_table(definition("one"))
    assert store.create_table(definition("one", if_not_exists=True)).name == "one"
    with pytest.raises(InvalidArgumentError, match=r"has 3 tables, .* at most 3 are allowed"):
        store.create_table(definition("more"))
    store.drop_table("one", keep_seconds=100)
    with pytest.raises(InvalidArgumentError, match="has 3 tables, including dropped tables"):
        store.create_table(definition("more"))
    store.recall_table("one")
    store.drop_table("one")
    store.create_table(definition("more", partition_by=[HashLevel(hash=["k"], buckets=2)]))
    with pytest.raises(InvalidArgumentError, match="have 5 tablets, and 1 more"):
        Database(store).table("t").alter().split_partition(5).apply()
    subject.close()


@pytest.mark.parametrize("way", ["a write", "a staged part"])
def test_a_batch_has_so_many_rows(way: str) -> None:
    subject = Subject(limits={"batch_rows": 3})
    rows = batch([(key, 1, "") for key in range(4)])
    assert subject.store.write_rows(WriteCommand(table="t"), rows.to_pylist()) is None
    with pytest.raises(InvalidArgumentError, match=r"a batch of 4 rows is too large: .*at most 3 "):
        if way == "a write":
            subject.store.write(WriteCommand(table="t"), rows)
        else:
            stage = Stage(transaction="x", part="p")
            subject.store.stage(WriteCommand(table="t", stage=stage), [StagedBatch(rows)])
    subject.upsert(1, 2, 3)
    subject.check()
    subject.close()
