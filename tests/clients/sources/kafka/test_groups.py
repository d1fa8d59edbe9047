"""Groups, positions and what becomes of them when Kafka is not as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

import nyala
from nyala import ConflictError, InvalidArgumentError, NotFoundError, UnavailableError
from nyala.clients.api.database import Database
from nyala.clients.sources.kafka import cluster, group_runner, membership
from nyala.clients.sources.kafka.cluster import Cluster
from nyala.clients.sources.kafka.membership import Member
from nyala.sources.kafka import ConsumeResult, consume, consumer

from ..kafka_cluster import QUICK, KafkaCluster

CatchUp = Callable[..., ConsumeResult]
SCHEMA = pa.schema([pa.field("part", pa.int32(), False), pa.field("number", pa.int64(), False)])


def value(part: int, number: int) -> bytes:
    return json.dumps({"part": part, "number": number}).encode()


def send(kafka: KafkaCluster, topic: str, part: int, first: int, end: int) -> None:
    kafka.send(topic, [value(part, number) for number in range(first, end)], partition=part)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.05)


@pytest.fixture
def own() -> Iterator[KafkaCluster]:
    """A cluster that a test may harm."""
    cluster = KafkaCluster()
    yield cluster
    cluster.close()


def test_a_group_shares_partitions_and_each_message_comes_once(remote: Database, kafka: KafkaCluster, url: str) -> None:
    kafka.create("shared", 4)
    remote.create_table("shared", SCHEMA, ["part", "number"])
    for part in range(4):
        send(kafka, "shared", part, 0, 500)
    ended: list[ConsumeResult] = []
    runners = []
    for _ in range(2):
        runner = consumer(remote, kafka.address, ["shared"], op="insert", group="shared", options=QUICK)
        thread = threading.Thread(target=lambda runner=runner: ended.append(runner.run()))
        thread.start()
        runners.append((runner, thread))
    wait_until(lambda: remote.table("shared").count() == 2_000)
    for part in range(4):
        send(kafka, "shared", part, 500, 1_000)
    runners[0][0].stop()
    runners[0][1].join(60)
    wait_until(lambda: remote.table("shared").count() == 4_000)
    runners[1][0].stop()
    runners[1][1].join(60)
    assert len(ended) == 2 and sum(each.messages for each in ended) == 4_000
    assert remote.table("nyala_rejects").count() == 0
    assert ended[1].positions == {f"shared[{part}]": 1_000 for part in range(4)}


def test_a_zombie_commits_nothing(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has applied a message after this one took it, and before its commit."""
    embedded.create_table(topic, SCHEMA, ["part", "number"])
    send(kafka, topic, 0, 0, 10)
    apply, seen = membership.Member._apply, []

    def overtaken(self: membership.Member, batch: Any) -> None:
        if not seen:
            seen.append(batch.count)
            rows = self._partitions.read()
            rival = type(self._partitions)(embedded, topic)
            rival.take(rows)
            [advance] = batch.advances.values()
            rival.move(advance.partition, 4, membership.ClusterMemo())
        apply(self, batch)

    monkeypatch.setattr(membership.Member, "_apply", overtaken)
    result = catch_up(embedded, [topic], op="insert")
    assert seen == [10] and (result.messages, result.rejoins, result.rejects) == (6, 1, 0)
    assert sorted(embedded.table(topic).scan().to_arrow()["number"].to_pylist()) == [4, 5, 6, 7, 8, 9]


def test_messages_that_are_gone_stop_the_run_and_are_never_skipped(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    embedded.create_table(topic, SCHEMA, ["part", "number"])
    send(kafka, topic, 0, 0, 10)
    catch_up(embedded, [topic])
    send(kafka, topic, 0, 10, 30)
    kafka.expire(topic, 0, 20)
    with pytest.raises(ConflictError, match=r"messages 10 to 19 of .*\[0\] were deleted.*--accept-gap continues.* 20"):
        catch_up(embedded, [topic])
    assert embedded.table(topic).count() == 10
    assert catch_up(embedded, [topic], accept_gap=True).messages == 10
    assert embedded.table(topic).count() == 20


def test_a_topic_that_was_made_anew_is_noticed(embedded: Database, own: KafkaCluster, catch_up: CatchUp) -> None:
    def run(**given: Any) -> ConsumeResult:
        return consume(embedded, own.address, ["anew"], until_caught_up=True, options=QUICK, **given)

    own.create("anew")
    embedded.create_table("anew", SCHEMA, ["part", "number"])
    send(own, "anew", 0, 0, 10)
    run()
    own.delete("anew")
    with pytest.raises(NotFoundError, match="has no topic anew"):
        run()
    own.create("anew")
    send(own, "anew", 0, 100, 120)
    with pytest.raises(ConflictError, match="created again"):
        run()
    assert run(accept_gap=True).messages == 20
    assert embedded.table("anew").count() == 30


def test_where_topics_begin(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp) -> None:
    embedded.create_table(topic, SCHEMA, ["part", "number"])
    send(kafka, topic, 0, 0, 10)
    assert catch_up(embedded, [topic], start="latest").messages == 0
    send(kafka, topic, 0, 10, 15)
    assert catch_up(embedded, [topic], start="latest").messages == 5


def test_a_broker_that_is_down_for_a_while(embedded: Database, own: KafkaCluster) -> None:
    own.create("down")
    embedded.create_table("down", SCHEMA, ["part", "number"])
    send(own, "down", 0, 0, 10)
    runner = consumer(embedded, own.address, ["down"], options=QUICK)
    thread = threading.Thread(target=runner.run)
    thread.start()
    wait_until(lambda: embedded.table("down").count() == 10)
    own.set_down(True)
    time.sleep(1)
    own.set_down(False)
    send(own, "down", 0, 10, 20)
    wait_until(lambda: embedded.table("down").count() == 20)
    runner.stop()
    thread.join(60)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_topic_that_is_unknown_for_a_while(
    embedded: Database, own: KafkaCluster, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """A broker that has just started may not know its topics yet, however long it was down."""
    answers, topics_of, poll = [0], Cluster.topics, Member.poll

    def topics(self: Cluster, consumer: Any, names: Sequence[str]) -> dict[str, list[int]]:
        answers[0] += 1
        if answers[0] in (2, 3) and not is_deleted:
            raise UnavailableError("no broker answers")
        if answers[0] > 1 and (is_deleted or answers[0] == 4):
            raise self.translated(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "young")
        return topics_of(self, consumer, names)

    def interrupted(self: Member) -> bool:
        if answers == [1] and embedded.table("young").count() == 10:
            raise UnavailableError("the broker starts again")
        return poll(self)

    monkeypatch.setattr(Cluster, "topics", topics)
    monkeypatch.setattr(Member, "poll", interrupted)
    monkeypatch.setattr(group_runner, "_TOPIC_SECONDS", 1.0)
    own.create("young")
    embedded.create_table("young", SCHEMA, ["part", "number"])
    send(own, "young", 0, 0, 10)
    runner = consumer(embedded, own.address, ["young"], options=QUICK)
    running = ThreadPoolExecutor(1).submit(runner.run)
    if is_deleted:
        with pytest.raises(NotFoundError, match="has no topic young"):
            running.result(60)
        return
    wait_until(lambda: answers[0] >= 5)
    send(own, "young", 0, 10, 20)
    wait_until(lambda: embedded.table("young").count() == 20)
    runner.stop()
    assert running.result(60).rejoins == 4


def test_mistakes_are_one_sentence(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(topics: Any = (topic,), address: str = kafka.address, **given: Any) -> None:
        consume(embedded, address, topics, until_caught_up=True, **given)

    for words, given in {
        "kafka://host:9092": {"address": "localhost:9092"},
        "name at least one topic": {"topics": []},
        "'xml' is not a format": {"format": "xml"},
        "needs a registry": {"format": "avro"},
        "cannot be set": {"options": {"group.id": "x"}},
        "rejects its options": {"options": {"no.such.option": 1}},
        "leave --op out": {"format": "debezium-json", "op": "insert"},
        "table of the consumer itself": {"topics": {topic: "nyala_sources"}},
        "must not be empty": {"group": "a/b"},
    }.items():
        with pytest.raises(InvalidArgumentError, match=words):
            run(**given)
    with pytest.raises(NotFoundError, match="has no topic nowhere"):
        run(["nowhere"])
    with pytest.raises(UnavailableError, match=r"Kafka at 127\.0\.0\.1:1"), monkeypatch.context() as patched:
        patched.setattr(cluster, "ANSWER_SECONDS", 0.5)
        run(address="kafka://127.0.0.1:1")
    kafka.send(topic, [b"{}"])
    with pytest.raises(NotFoundError, match=f"there is no table {topic!r}"):
        run(options=QUICK)
    embedded.create_table("one", SCHEMA, ["part", "number"])
    embedded.create_table("other", SCHEMA, ["part", "number"])
    catch_up(embedded, {topic: "one"})
    with pytest.raises(ConflictError, match=r"so far the group has applied .* to the table 'one'"):
        catch_up(embedded, {topic: "other"})


def test_the_command_runs_until_it_is_interrupted_and_continues(
    remote: Database, kafka: KafkaCluster, topic: str, url: str, tmp_path: Path
) -> None:
    remote.create_table("events", SCHEMA, ["part", "number"])
    config = tmp_path / "client.properties"
    config.write_text("# of the client\n" + "".join(f"{name} = {each}\n" for name, each in QUICK.items()))
    command = [sys.executable, "-m", "nyala", "consume", kafka.address, "--topic", topic, "--as", "events"]
    command += ["--group", topic, "--config", str(config), "--url", url]
    send(kafka, topic, 0, 0, 100)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"NYALA_URL": ""})
    wait_until(lambda: remote.table("events").count() == 100)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0 and process.stdout is not None
    assert process.stdout.read() == "applied 100 messages in 1 commit\n"
    kafka.send(topic, [b"no", value(0, 100)])
    ended = subprocess.run([*command, "--once", "--json"], capture_output=True, text=True, timeout=60)
    answer = json.loads(ended.stdout)
    assert ended.returncode == 1 and (answer["messages"], answer["rejects"]) == (2, 1)
    with nyala.connect(url) as database:
        [row] = database.table("nyala_sources").scan(where=f"source = '{topic}/{topic}/0'").to_arrow().to_pylist()
    assert (row["kind"], row["position"], row["behind_messages"]) == ("kafka", "102", 0)
