"""A broker of Apache Kafka, on 127.0.0.1, in a process and a folder of its own: ``KAFKA_HOME`` names a release."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.compare.peers.nyala_subject import free_port
from tests.clients.sources.kafka_client import KafkaClient

_CLUSTER_ID = "bnlhbGEtbnlhbGEtbnlhbA"
_START_SECONDS = 90
_LOGGING = "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n" + (
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n\n"
)


def kafka_home() -> Path:
    """Return the folder of Apache Kafka; its jars are in ``libs``. Raises RuntimeError: there is none."""
    home = os.environ.get("KAFKA_HOME", "")
    if not home or not any(Path(home).glob("libs/kafka_2.1*.jar")):
        raise RuntimeError(f"KAFKA_HOME is {home!r}: unpack a release of Apache Kafka, and name its folder")
    return Path(home)


class KafkaBroker(KafkaClient):
    """One node in KRaft mode, which is the controller, too. Sessions of groups may be short."""

    def __init__(self) -> None:
        kafka_home()
        self.folder = Path(tempfile.mkdtemp(prefix="nyala-broker-"))
        port, controller = free_port(), free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "broker.session.timeout.ms": "2000",  # a broker that was killed is registered again after it
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "100",
            "group.min.session.timeout.ms": "1000",
        }
        self._config = self.folder / "server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (self.folder / "log4j.properties").write_text(_LOGGING)
        self._log = self.folder / "log"
        formatting = self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._config))
        assert formatting.wait(_START_SECONDS) == 0, self._end_of_log()
        self._process = self._start(f"127.0.0.1:{port}")
        super().__init__(f"127.0.0.1:{port}")

    def _java(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        options = ["-Xmx512m", f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"]
        words = [java, *options, "-cp", str(kafka_home() / "libs" / "*"), program, *arguments]
        with self._log.open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder)

    def _start(self, servers: str) -> subprocess.Popen[bytes]:
        process = self._java("kafka.Kafka", str(self._config))
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 500})
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return process
            except KafkaException:
                pass
            assert process.poll() is None, f"the broker ended with {process.poll()}: {self._end_of_log()}"
            if time.monotonic() > until:
                process.kill()
                raise AssertionError(f"the broker does not answer: {self._end_of_log()}")

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        for answer in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            answer.result(_START_SECONDS)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def kill_and_start(self) -> None:
        """Kill it, start it again on the same folder and port, and wait until it answers."""
        self.kill()
        self._process = self._start(self.servers)

    def close(self) -> None:
        """End it, and remove its folder."""
        super().close()
        self.kill()
        shutil.rmtree(self.folder)
