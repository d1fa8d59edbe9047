#!/usr/bin/env bash
# See that there is a PostgreSQL for the tests of mirrors, version 14 or later; on a Debian run as root, install one.
# The package starts no server: the tests start their own, on 127.0.0.1.
set -euo pipefail
oldest=14

for program in /usr/lib/postgresql/*/bin/initdb; do
    version=${program#/usr/lib/postgresql/}
    if [ -x "$program" ] && [ "${version%%/*}" -ge "$oldest" ]; then exit 0; fi
done
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq >/dev/null
    echo "installing postgresql"
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
else
    echo "the tests of mirrors need PostgreSQL $oldest or later; on Debian or Ubuntu: sudo apt install postgresql" >&2
    exit 1
fi
