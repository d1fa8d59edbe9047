"""Kill and stop the consumers of a group, and their store, under load, and look for each message exactly once.

    python tests/campaigns/kafka/campaign.py --messages 1000000 --kills 40 --seed 0

Messages are inserted, not upserted: a message that is applied twice is a row that is there already, which the store
refuses. Some messages are no JSON, and must be rejects, once each. A consumer that is stopped for longer than its
session is a zombie when it goes on: others own its partitions by then. The Kafka is librdkafka's mock cluster in this
process, which keeps 5 MiB of each partition: the load waits for the consumers.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import pyarrow as pa

import nyala
from bench.compare.peers.nyala_subject import free_port
from nyala.clients.cli.run import EXIT_CODES, FINDINGS
from nyala.schemas.errors import StoreError, UnavailableError
from tests.campaigns.crash.kill9 import Server
from tests.campaigns.kafka.consume_process import ASSIGNED
from tests.clients.sources.kafka_cluster import KafkaCluster

PROGRAM = Path(__file__).with_name("consume_process.py")
TOPIC, GROUP = "load", "campaign"
PARTITIONS, CONSUMERS = 8, 3
SESSION_SECONDS = 2.0
ZOMBIE_SECONDS = 4.0
BAD_EVERY = 997
"""One in so many messages is no JSON."""
_AHEAD = 25_000
"""So many messages of a partition may wait for consumers: the mock forgets more than 5 MiB."""
_SLICE = 2_000
_ABSENT = EXIT_CODES[UnavailableError.code]
_CATCH_UP_SECONDS = 240
_SCHEMA = pa.schema(
    [
        pa.field("part", pa.int32(), False),
        pa.field("number", pa.int64(), False),
        ("text", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)


class Consumer:
    """A process of the group; it is started again whenever it has ended."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen([sys.executable, *self._arguments], stdout=log, stderr=log, env=os.environ)

    def check(self) -> None:
        """Check that it runs; start it again, as a supervisor would, if it had no store at its start."""
        if (code := self._process.poll()) == _ABSENT:
            self._process = self._start()
        elif code is not None:
            raise AssertionError(f"a consumer ended with {code}: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill it, and start the next one."""
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def stop(self) -> None:
        """Ask it to end, and start the next one."""
        self.end()
        self._process = self._start()

    def end(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.terminate()
        code = self._process.wait(60)
        assert code in (0, FINDINGS, _ABSENT, -signal.SIGTERM), f"{code}: {self._log.read_text()[-2000:]}"

    def suspend(self, is_suspended: bool) -> None:
        """Stop it where it is, or let it go on."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGSTOP if is_suspended else signal.SIGCONT)

    def close(self) -> None:
        """End it for good."""
        self.suspend(False)
        self._process.kill()
        self._process.wait()


@dataclass
class Campaign:
    """One run; all figures of it."""

    seed: int
    mistake: str = "none"
    kills: dict[str, int] = field(default_factory=lambda: {"kill": 0, "stop": 0, "zombie": 0, "store": 0})
    assignments: int = 0
    messages: int = 0
    rejects: int = 0
    seconds: float = 0.0

    def run(self, messages: int, kills: int) -> None:
        """Send messages, with so many kills, until all are applied, and compare.

        Raises:
            AssertionError: a message is missing, or came twice.
        """
        kafka = KafkaCluster()
        try:
            with tempfile.TemporaryDirectory(prefix="nyala-kafka-") as folder:
                kafka.create(TOPIC, PARTITIONS)
                self._run(kafka, Path(folder), messages, kills)
        finally:
            kafka.close()

    def _run(self, kafka: KafkaCluster, folder: Path, messages: int, kills: int) -> None:
        random, port = Random(self.seed), free_port()
        server = Server(folder / "store", port)
        with nyala.connect(server.location) as database:
            database.create_table(TOPIC, _SCHEMA, ["part", "number"])
        config = folder / "client.properties"
        config.write_text(f"session.timeout.ms={int(SESSION_SECONDS * 1000)}\nheartbeat.interval.ms=300\n")
        arguments = [str(PROGRAM), self.mistake, "consume", kafka.address, "--topic", TOPIC, "--op", "insert"]
        arguments += ["--group", GROUP, "--config", str(config), "--url", server.location]
        consumers = [Consumer(arguments, folder / f"log{number}") for number in range(CONSUMERS)]
        load = _Load(kafka, messages)
        moments = sorted(random.uniform(0.02, 0.98) for _ in range(kills))
        resumed: dict[int, float] = {}
        began, until = time.monotonic(), None
        try:
            while True:
                load.send(self._positions(server.location))
                for number, at in list(resumed.items()):
                    if time.monotonic() > at:
                        consumers[number].suspend(False)
                        del resumed[number]
                for number, consumer in enumerate(consumers):
                    if number not in resumed:
                        consumer.check()
                while moments and load.share >= moments[0]:
                    moments.pop(0)
                    server = self._hit(random, consumers, resumed, server, folder, port)
                if load.is_over and load.is_applied(self._positions(server.location)) and not resumed:
                    break
                until = until or (time.monotonic() + _CATCH_UP_SECONDS if load.is_over else None)
                assert until is None or time.monotonic() < until, "not all messages are applied"
            self.seconds = time.monotonic() - began
            for consumer in consumers:
                consumer.end()
            self.assignments = sum(path.read_text().count(ASSIGNED) for path in folder.glob("log*"))
            self._check(server.location, load)
        finally:
            for consumer in consumers:
                consumer.close()
            server.kill()

    def _hit(
        self,
        random: Random,
        consumers: list[Consumer],
        resumed: dict[int, float],
        server: Server,
        folder: Path,
        port: int,
    ) -> Server:
        """Do harm to a consumer, or to the store; return the store."""
        kind = random.choices(list(self.kills), [5, 2, 6, 2])[0]
        number = random.randrange(len(consumers))
        if kind == "store":
            server.kill()
            server = Server(folder / "store", port)
        elif number in resumed:
            return server
        elif kind == "zombie":
            consumers[number].suspend(True)
            resumed[number] = time.monotonic() + ZOMBIE_SECONDS
        else:
            getattr(consumers[number], kind)()
        self.kills[kind] += 1
        return server

    def _positions(self, url: str) -> dict[int, int]:
        """Return the next offset of each partition in the store; nothing if it does not answer now."""
        try:
            with nyala.connect(url) as database:
                if "nyala_sources" not in database.tables():
                    return {}
                rows = database.table("nyala_sources").scan(columns=["source", "position"]).to_arrow().to_pylist()
        except StoreError:
            return {}
        return {int(row["source"].rpartition("/")[2]): int(row["position"]) for row in rows}

    def _check(self, url: str, load: _Load) -> None:
        """Compare all rows and rejects with what was sent."""
        with nyala.connect(url) as database:
            rejects = database.table("nyala_rejects").scan().to_arrow().to_pylist()
            rows = database.table(TOPIC).scan().to_arrow().combine_chunks()
        twice = [row["reason"] for row in rejects if "not JSON" not in row["reason"]]
        assert not twice, f"{len(twice)} messages came twice: {twice[:2]}"
        bad = {(row["partition"], row["offset"]) for row in rejects}
        expected = {(part, number) for part, count in enumerate(load.sent) for number in range(count) if is_bad(number)}
        assert bad == expected and len(rejects) == len(bad), f"{len(bad)} rejects, and {len(expected)} bad messages"
        self.rejects, self.messages = len(bad), sum(load.sent)
        part, number = (rows[name].to_numpy() for name in ("part", "number"))
        for at, count in enumerate(load.sent):
            there = np.sort(number[part == at])
            good = np.array([each for each in range(count) if not is_bad(each)], np.int64)
            lost = np.setdiff1d(good, there)
            assert len(there) == len(good) and not len(lost), f"partition {at} lost {len(lost)}: {lost[:3]}"
        assert np.array_equal(number, rows["kafka_offset"].to_numpy())
        assert np.array_equal(part, rows["kafka_partition"].to_numpy())
        texts = pa.array([text_of(*pair) for pair in zip(part.tolist(), number.tolist(), strict=True)])
        assert rows["text"].combine_chunks().equals(texts), "a text differs"

    def report(self) -> str:
        """Return all figures as a text."""
        hits = ", ".join(f"{count} {name}" for name, count in self.kills.items())
        return (
            f"seed {self.seed}: {self.messages:,} messages over {PARTITIONS} partitions, {self.rejects} of them "
            f"rejects, in {self.seconds:.0f} s ({self.messages / self.seconds:,.0f} messages/s); {hits}; "
            f"{self.assignments} assignments; each message once"
        )


class _Load:
    """Sends messages, as many as the mock keeps."""

    def __init__(self, kafka: KafkaCluster, messages: int) -> None:
        self._kafka = kafka
        self._each = messages // PARTITIONS
        self.sent = [0] * PARTITIONS
        self._applied = [0] * PARTITIONS

    @property
    def share(self) -> float:
        """How much of the load is sent."""
        return sum(self.sent) / (self._each * PARTITIONS)

    @property
    def is_over(self) -> bool:
        """Whether everything is sent."""
        return min(self.sent) >= self._each

    def is_applied(self, positions: dict[int, int]) -> bool:
        """Whether the store has everything."""
        return all(positions.get(part, 0) == count for part, count in enumerate(self.sent))

    def send(self, positions: dict[int, int]) -> None:
        """Send a little to each partition that has room."""
        is_idle = True
        for part, count in enumerate(self.sent):
            self._applied[part] = max(self._applied[part], positions.get(part, 0))
            end = min(count + _SLICE, self._each, self._applied[part] + _AHEAD)
            if end > count:
                is_idle = False
                self._kafka.send(TOPIC, [value_of(part, number) for number in range(count, end)], partition=part)
                self.sent[part] = end
        if is_idle:
            time.sleep(0.05)


def is_bad(number: int) -> bool:
    """Whether a message is no JSON."""
    return number % BAD_EVERY == BAD_EVERY - 1


def text_of(part: int, number: int) -> str:
    """Return the text in a message."""
    return f"{part}/{number * 7919 % 1_000_003}"


def value_of(part: int, number: int) -> bytes:
    """Return a message; its number is its offset."""
    if is_bad(number):
        return b"{no"
    return f'{{"part":{part},"number":{number},"text":"{text_of(part, number)}"}}'.encode()


def main() -> None:
    """Run the campaign, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, help="by default one for every 25,000 messages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mistake", default="none", choices=["none", "lose"])
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    campaign = Campaign(options.seed, options.mistake)
    campaign.run(options.messages, max(options.messages // 25_000, 2) if options.kills is None else options.kills)
    print(campaign.report())


if __name__ == "__main__":
    main()
