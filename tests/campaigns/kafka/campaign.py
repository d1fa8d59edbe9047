"""Kill and pause the consumers of a group, their store and their broker, under load; look for each message once.

    python tests/campaigns/kafka/campaign.py --messages 1000000 --kills 40 --seed 0
    python tests/campaigns/kafka/campaign.py --broker real --planted early-offsets

Messages are inserted, not upserted: a message that is applied twice is a row that is there already, which the store
refuses. Some messages are no JSON, and must be rejects, once each. A consumer that is paused for longer than its
session is a zombie when it goes on: others own its partitions by then. At each moment of the store the positions must
be those of its rows. The Kafka is librdkafka's mock cluster in this process, or a broker of Apache Kafka.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from bench.compare.peers.nyala_subject import free_port
from tests.campaigns import options as drawn
from tests.campaigns.crash.kill9 import Server
from tests.campaigns.kafka.audit import SCHEMA, Audit
from tests.campaigns.kafka.consumers import PROGRAM, SESSION_SECONDS, Group
from tests.campaigns.kafka.load import Load
from tests.campaigns.kafka.planted import MISTAKES
from tests.clients.sources.kafka_broker import KafkaBroker
from tests.clients.sources.kafka_cluster import KafkaCluster

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability"})
TOPIC, GROUP = "load", "campaign"
PARTITIONS, CONSUMERS = 8, 3
_CATCH_UP_SECONDS = 240
_LOOK_SECONDS = 1.0
"""How often a moment of the store is compared with its positions."""
_ODDS = {"kill": 5, "join": 3, "leave": 3, "pause": 6, "store": 2, "broker": 2}


@dataclass
class Campaign:
    """One run; all figures of it."""

    seed: int
    planted: str = "none"
    is_real: bool = False
    """Whether the Kafka is a broker of Apache Kafka."""
    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ODDS, 0))
    """How often each harm was done."""
    events: dict[str, int] = field(default_factory=dict)
    """What the group made of it."""
    moments: int = 0
    messages: int = 0
    rejects: int = 0
    seconds: float = 0.0

    def run(self, messages: int, kills: int) -> None:
        """Send messages, with so many kills and the like, until all are applied, and compare.

        Raises:
            AssertionError: a message is missing, or came twice.
        """
        kafka = KafkaBroker() if self.is_real else KafkaCluster()
        try:
            with tempfile.TemporaryDirectory(prefix="nyala-kafka-") as folder:
                kafka.create(TOPIC, PARTITIONS)
                self._run(kafka, Path(folder), messages, kills)
        finally:
            kafka.close()

    def _run(self, kafka: KafkaBroker | KafkaCluster, folder: Path, messages: int, kills: int) -> None:
        random, port = Random(self.seed), free_port()
        self._server = Server(folder / "store", port)
        url = self._server.location
        with nyala.connect(url) as database:
            database.create_table(TOPIC, SCHEMA, ["part", "number"], (), drawn.columns(SCHEMA), **drawn.table())
        config = folder / "client.properties"
        config.write_text(f"session.timeout.ms={int(SESSION_SECONDS * 1000)}\nheartbeat.interval.ms=300\n")
        arguments = [str(PROGRAM), self.planted, "consume", kafka.address, "--topic", TOPIC, "--op", "insert"]
        arguments += ["--group", GROUP, "--config", str(config), "--url", url]
        group = Group(arguments, folder, CONSUMERS)
        load = Load(kafka, TOPIC, PARTITIONS, messages)
        audit = Audit(url, TOPIC, PARTITIONS)
        moments = sorted(random.uniform(0.02, 0.98) for _ in range(kills))
        began, until, looked_at = time.monotonic(), None, 0.0
        try:
            while True:
                load.send(audit.positions())
                group.check()
                while moments and load.share >= moments[0]:
                    moments.pop(0)
                    self._hit(random, group, kafka, folder / "store", port)
                if time.monotonic() - looked_at > _LOOK_SECONDS:
                    looked_at = time.monotonic()
                    audit.check_moment()
                if load.is_over and load.is_applied(audit.positions()) and not group.has_paused:
                    break
                until = until or (time.monotonic() + _CATCH_UP_SECONDS if load.is_over else None)
                assert until is None or time.monotonic() < until, f"the store has not more than {audit.positions()}"
            self.seconds = time.monotonic() - began
            group.end()
            self.events = group.events()
            audit.check_end(load)
            self.moments, self.rejects, self.messages = audit.moments, audit.rejects, sum(load.sent)
        finally:
            group.close()
            self._server.kill()

    def _hit(self, random: Random, group: Group, kafka: KafkaBroker | KafkaCluster, store: Path, port: int) -> None:
        """Do harm to a consumer, to the store or to the broker."""
        kinds = [kind for kind in _ODDS if self.is_real or kind != "broker"]
        kind = random.choices(kinds, [_ODDS[each] for each in kinds])[0]
        number = random.randrange(1 << 16)
        consumer = group.running[number % len(group.running)]

        def restart_store() -> None:
            self._server.kill()
            self._server = Server(store, port)

        ways: dict[str, Callable[[], object]] = {
            "kill": consumer.kill,
            "pause": consumer.pause,
            "join": group.join,
            "leave": lambda: group.leave(number),
            "store": restart_store,
            "broker": lambda: isinstance(kafka, KafkaBroker) and kafka.kill_and_start(),
        }
        if consumer.paused_until is None or kind not in ("kill", "pause"):
            self.hits[kind] += ways[kind]() is not False

    def report(self) -> str:
        """Return all figures as a text."""
        hits = ", ".join(f"{count} {name}" for name, count in self.hits.items())
        events = ", ".join(f"{count} {name}" for name, count in self.events.items())
        kind, rate = "Apache Kafka" if self.is_real else "the mock", self.messages / self.seconds
        return (
            f"seed {self.seed}: {self.messages:,} messages over {PARTITIONS} partitions of {kind}, {self.rejects} of "
            f"them rejects, in {self.seconds:.0f} s ({rate:,.0f} messages/s); {hits}; {events}; {self.moments} moments "
            "looked at; 0 twice, 0 lost"
        )


def main() -> None:
    """Run the campaign, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, help="and the like; by default one for every 25,000 messages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--broker", default="mock", choices=["mock", "real"], help="real: an Apache Kafka in KAFKA_HOME"
    )
    parser.add_argument("--planted", default="none", choices=list(MISTAKES), help="a mistake that it must find")
    drawn.add_to(parser)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    campaign = Campaign(options.seed, options.planted, options.broker == "real")
    kills = max(options.messages // 25_000, 2) if options.kills is None else options.kills
    with drawn.swarm_of(FEATURES, options).round(0):
        campaign.run(options.messages, kills)
    print(campaign.report())


if __name__ == "__main__":
    main()
