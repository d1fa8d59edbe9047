#!/usr/bin/env bash
# Run tests on an emulated 64-bit Arm, with the kernels that were compiled for it here:  .ci/aarch64.sh [tests]
# Needs Debian; as root it installs the emulator. Debian's Python for Arm, and the wheels of what Nyala needs, go to
# build/aarch64, and nothing of them is installed. It takes minutes: an emulated processor is 20 times as slow.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- tests/engine/codecs
place=$PWD/build/aarch64

emulator=$(.ci/aarch64_root.sh)
read -ra arm <<<"$emulator"

if [ ! -e "$place/.site" ]; then
    rm -rf "$place/site"
    version=$(basename "${arm[-1]}")
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --root-user-action ignore \
        --target "$place/site" --only-binary=:all: --implementation cp --python-version "${version#python}" \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
        numpy pyarrow lz4 zstandard pydantic typer rich pytest pytest-timeout pytest-xdist hypothesis
    touch "$place/.site"
fi

.ci/typing_links.sh
.venv/bin/python - "$place/libraries" <<'END'
import sys
from pathlib import Path

from nyala.engine.kernels.ahead.levels import LEVELS
from nyala.engine.kernels.ahead.library import library_name
from nyala.engine.kernels.compile.making import compile_library
from nyala.engine.kernels.ahead.private import source_digest

level = next(level for level in LEVELS if level.machine == "aarch64")
directory = Path(sys.argv[1]) / "nyala" / "libraries"
directory.mkdir(parents=True, exist_ok=True, mode=0o700)
if not (directory / library_name(level, source_digest())).exists():
    compile_library(directory, level)
END

export NYALA_CACHE_DIR=$place/libraries PYTHONPATH=$place/site:$PWD/.typing PYTHONPYCACHEPREFIX=$place/bytecode
"${arm[@]}" -P -c '
from nyala.engine.kernels.ahead.library import library
from nyala.engine.kernels.compile.self_test import self_test
assert library() is not None and library().level == "aarch64" and self_test()
print(len(library().kernels), "kernels")'
# Not the nyala/ of the checkout, which has a part of the package only, but that of .typing.
"${arm[@]}" -P -c '
import sys, nyala, pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[1:]]))' "$@"
