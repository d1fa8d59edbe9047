#!/usr/bin/env bash
# See that there is a Java for Spark, version 17 or later; on a Debian run as root, install one.
#   .ci/java.sh         what runs Spark
#   .ci/java.sh javac   also the compiler, for the shim
set -euo pipefail
home=${JAVA_HOME:+$JAVA_HOME/bin/}
package=openjdk-17-jre-headless
newer=openjdk-21-jre-headless
if [ "${1:-}" = javac ]; then package=openjdk-17-jdk-headless newer=openjdk-21-jdk-headless; fi

if version=$("${home}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') && [ "${version:-0}" -ge 17 ] &&
    { [ "${1:-}" != javac ] || "${home}javac" -version >/dev/null 2>&1; }; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq >/dev/null
    # Debian 13 has 21 only, which Spark takes as well.
    apt-cache show "$package" >/dev/null 2>&1 || package=$newer
    echo "installing $package"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
else
    echo "Spark needs Java 17 or later; on Debian or Ubuntu: sudo apt install $package" >&2
    exit 1
fi
