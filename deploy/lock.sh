#!/usr/bin/env bash
# Write which versions the image installs, with the hashes of their files:  deploy/lock.sh [--upgrade]
# Versions that still fit pyproject.toml stay; --upgrade takes the newest. Needs the Python version of the Dockerfile, in
# PATH or as $PYTHON: other versions may need other packages.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^FROM python:\([0-9]*\.[0-9]*\)-.*/\1/p' Dockerfile | sort -u)
python=${PYTHON:-python$version}
if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != "$version" ]; then
    echo "the image has Python $version; set PYTHON=/path/to/one" >&2
    exit 1
fi
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check pip-tools

compile() {
    CUSTOM_COMPILE_COMMAND="make lock" "$tools/bin/pip-compile" --quiet --generate-hashes --strip-extras --allow-unsafe \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host "$@"
}

compile "$@" --extra server --extra auth --extra http --extra encryption --extra bucket --extra otel --output-file deploy/requirements.txt pyproject.toml
"$tools/bin/python" -c '
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
' >"$tools/build.in"
compile "$@" --no-annotate --output-file deploy/requirements-build.txt "$tools/build.in"
