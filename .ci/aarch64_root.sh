#!/usr/bin/env bash
# Make a root with Debian's Python for 64-bit Arm, and print how to run it on this machine:  .ci/aarch64_root.sh
# Needs Debian; as root it installs the emulator. The root is in build/aarch64, and nothing of it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/build/aarch64
root=$place/root

if ! command -v qemu-aarch64 >/dev/null; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "qemu-aarch64 is missing; on Debian or Ubuntu: sudo apt install qemu-user" >&2
        exit 1
    fi
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-user >/dev/null
fi

if [ ! -e "$place/.root" ]; then
    rm -rf "$place"
    mkdir -p "$place"/{state/lists/partial,cache/archives/partial,root}
    touch "$place/state/status" # no package is installed
    cat >"$place/apt.conf" <<END
Dir::State "$place/state";
Dir::State::status "$place/state/status";
Dir::Cache "$place/cache";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
END
    export APT_CONFIG=$place/apt.conf
    apt-get update -qq >/dev/null
    apt-get install -y -qq --no-install-recommends --download-only python3 libstdc++6 >/dev/null
    unset APT_CONFIG
    for package in "$place"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
    touch "$place/.root"
fi
echo qemu-aarch64 -L "$root" "$(ls "$root"/usr/bin/python3.[0-9]*)"
