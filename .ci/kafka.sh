#!/usr/bin/env bash
# See that there is an Apache Kafka for the campaign of consumers on a real broker; bring its jars if there is none.
# It is the one in KAFKA_HOME, a folder of a release of Kafka; else the one in build/kafka, which Maven fills from the
# artifacts in kafka.xml beside this script. It fails where neither is to be had: nothing is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
own=build/kafka

has_broker() { compgen -G "$1/libs/kafka_2.1*.jar" >/dev/null; }

.ci/java.sh
if [ -n "${KAFKA_HOME:-}" ]; then
    has_broker "$KAFKA_HOME" && exit 0
    echo "KAFKA_HOME is $KAFKA_HOME, and has no libs/kafka_2.1*.jar: name the folder of a release of Apache Kafka" >&2
    exit 1
fi
if has_broker "$own"; then exit 0; fi
advice="unpack a release of Apache Kafka and set KAFKA_HOME to its folder"
if ! command -v mvn >/dev/null; then
    echo "there is no Apache Kafka here, and no Maven to bring it: $advice" >&2
    exit 1
fi
echo "bringing Apache Kafka by Maven"
mkdir -p build
scratch=$(mktemp -d build/kafka-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
if ! mvn -q -B -f .ci/kafka.xml package -DoutputDirectory="$PWD/$scratch/libs" >"$scratch/log" 2>&1 ||
    ! has_broker "$scratch"; then
    grep -m 2 ERROR "$scratch/log" >&2 || true
    echo "Maven cannot bring Apache Kafka: $advice" >&2
    exit 1
fi
rm -rf "$own"
mv "$scratch" "$own"
trap - EXIT
