#!/usr/bin/env bash
# Style, format, types and floors; all four always run, each says "ok" or what is wrong.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
status=0

check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        printf '%-14s ok\n' "$name"
    else
        printf '%s\n%-14s FAILED\n' "$output" "$name"
        status=1
    fi
}

.ci/typing_links.sh
check ruff "$bin/ruff" check --quiet --output-format concise .
check format "$bin/ruff" format --quiet --check --output-format concise .
check pyright "$bin/pyright" --warnings
cd .typing
check import-linter "$bin/lint-imports" --config ../pyproject.toml --no-logo --no-cache
exit $status
