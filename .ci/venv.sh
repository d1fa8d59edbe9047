#!/usr/bin/env bash
# Make .venv, or bring it up to pyproject.toml:  .ci/venv.sh GROUP
# Needs only python3 (or $PYTHON); on a bare Debian run as root it fetches the venv module first.
set -euo pipefail
cd "$(dirname "$0")/.."
group=$1
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Nyala needs Python 3.11 or later; set PYTHON=/path/to/one" >&2
    exit 1
fi

if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
            echo "installing python3-venv"
            apt-get update -qq >/dev/null
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
        else
            echo "$python cannot make virtual environments; on Debian or Ubuntu: sudo apt install python3-venv" >&2
            exit 1
        fi
    fi
    echo "making .venv"
    rm -rf .venv
    "$python" -m venv .venv
fi

pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input ${NO_WARMUP:+--no-compile})
if ! .venv/bin/python -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))'; then
    "${pip[@]}" --upgrade "pip>=25.1" # the first that reads groups of dependencies; Python brings an older one
fi
export PYTHONWARNINGS=ignore # of setuptools, about editable installations
echo "installing nyala and its group '$group' into .venv"
"${pip[@]}" --root-user-action ignore --use-pep517 --editable . --group "$group"
if [ -z "${NO_WARMUP:-}" ]; then
    echo "compiling the kernels"
    .venv/bin/nyala warmup
fi
touch ".venv/.installed-$group"
