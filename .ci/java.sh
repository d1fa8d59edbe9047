#!/usr/bin/env bash
# See that there is a Java for Spark, version 17 or later; on a Debian run as root, install one.
set -euo pipefail
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
package=openjdk-17-jre-headless

if version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') && [ "${version:-0}" -ge 17 ]; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq >/dev/null
    # Debian 13 has 21 only, which Spark takes as well.
    apt-cache show "$package" >/dev/null 2>&1 || package=openjdk-21-jre-headless
    echo "installing $package"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
else
    echo "Spark needs Java 17 or later; on Debian or Ubuntu: sudo apt install $package" >&2
    exit 1
fi
