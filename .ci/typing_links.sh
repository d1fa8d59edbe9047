#!/usr/bin/env bash
# Lay out .typing/nyala the way an installed package looks, out of links: engine/ -> nyala/engine and so on.
# Static tools (pyright, import-linter) read folders; they do not run setuptools' editable import hook.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p .typing/nyala
find .typing/nyala -type l -delete
for source in nyala/*.py nyala/py.typed; do
    ln -sfn "../../$source" ".typing/nyala/$(basename "$source")"
done
for part in schemas engine flight_server clients java; do
    ln -sfn "../../$part" ".typing/nyala/$part"
done
