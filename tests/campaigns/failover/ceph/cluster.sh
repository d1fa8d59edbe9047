#!/usr/bin/env bash
# A small Ceph in a folder, out of Debian's packages, which are unpacked there and not installed:
#   cluster.sh up FOLDER          a monitor, one OSD, two gateways that speak S3; a bucket's owner with made-up keys
#   cluster.sh kill-osd FOLDER    kill -9 the OSD
#   cluster.sh start-osd FOLDER
#   cluster.sh down FOLDER        kill everything of it
set -euo pipefail
mkdir -p "$2"
folder=$(cd "$2" && pwd)
packages=${CEPH_PACKAGES:-/var/tmp/nyala-ceph}
root=$packages/root
data=$folder/ceph
libraries=$root/usr/lib/x86_64-linux-gnu
export CEPH_CONF=$data/ceph.conf PATH=$root/usr/bin:$PATH PYTHONPATH=$root/usr/lib/python3/dist-packages
export LD_LIBRARY_PATH=$libraries:$root/usr/lib/ceph:$libraries/ceph:$root/lib/x86_64-linux-gnu

unpack() {
    [ -x "$root/usr/bin/radosgw" ] && return
    mkdir -p "$packages/debs/partial" "$root"
    apt-get update -qq
    apt-get install -qq -y --download-only --no-install-recommends -o Dir::Cache::archives="$packages/debs" \
        radosgw ceph-mon ceph-osd ceph-common >/dev/null
    for deb in "$packages"/debs/*.deb; do dpkg -x "$deb" "$root"; done
}

configure() {
    mkdir -p "$data"/{mon,osd/0,rgw,run,log}
    cat >"$CEPH_CONF" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon initial members = a
mon host = v1:127.0.0.1:16789
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000
mon data avail crit = 1
mon data avail warn = 2
run dir = $data/run
admin socket = $data/run/\$cluster-\$name.asok
pid file = $data/run/\$name.pid
log file = $data/log/\$name.log
plugin dir = $libraries
erasure code dir = $libraries/ceph/erasure-code
osd class dir = $libraries/rados-classes
keyring = /dev/null
ms bind msgr2 = false
[mon.a]
mon data = $data/mon/a
[osd]
osd crush update on start = false
osd class update on start = false
osd data = $data/osd/\$id
osd objectstore = bluestore
bluestore block size = 4294967296
bluestore block create = true
osd memory target = 939524096
osd op num shards = 2
[client.rgw.one]
rgw frontends = beast endpoint=127.0.0.1:18000 tcp_nodelay=1
rgw data = $data/rgw
[client.rgw.two]
rgw frontends = beast endpoint=127.0.0.1:18001 tcp_nodelay=1
rgw data = $data/rgw
[client]
rgw enable usage log = false
rgw thread pool size = 64
END
}

ceph() { /usr/bin/python3 "$root/usr/bin/ceph" -c "$CEPH_CONF" "$@"; }

start_osd() { ceph-osd -i 0 -c "$CEPH_CONF" >/dev/null 2>&1; }

up() {
    unpack
    configure
    fsid=$(sed -n 's/^fsid = //p' "$CEPH_CONF")
    monmaptool --create --fsid "$fsid" --addv a '[v1:127.0.0.1:16789]' "$data/monmap" >/dev/null
    ceph-mon --mkfs -i a --monmap "$data/monmap" -c "$CEPH_CONF"
    ceph-mon -i a -c "$CEPH_CONF"
    uuid=$(cat /proc/sys/kernel/random/uuid)
    ceph osd new "$uuid" >/dev/null
    ceph-osd -i 0 --mkfs --osd-uuid "$uuid" -c "$CEPH_CONF" 2>/dev/null
    ceph osd crush add osd.0 1.0 host=h root=default 2>/dev/null
    start_osd
    radosgw -n client.rgw.one -c "$CEPH_CONF"
    for _ in $(seq 60); do (exec 3<>/dev/tcp/127.0.0.1/18000) 2>/dev/null && break || sleep 1; done
    radosgw -n client.rgw.two -c "$CEPH_CONF"
    radosgw-admin -n client.rgw.one -c "$CEPH_CONF" user create --uid=nyala --display-name=nyala \
        --access-key="$AWS_ACCESS_KEY_ID" --secret-key="$AWS_SECRET_ACCESS_KEY" >/dev/null 2>&1
    for _ in $(seq 60); do (exec 3<>/dev/tcp/127.0.0.1/18001) 2>/dev/null && break || sleep 1; done
}

kill_all() {
    for file in "$data"/run/*.pid; do
        [ -e "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null || true
    done
}

case $1 in
    up) up ;;
    kill-osd) kill -9 "$(cat "$data/run/osd.0.pid")" ;;
    start-osd) start_osd ;;
    down) kill_all ;;
esac
