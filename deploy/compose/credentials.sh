#!/bin/sh
# For docker-compose.yml: make a certificate that is its own root, tokens, and a password for Grafana. What is there
# stays: to make a thing anew, delete its file first.
#   docker compose run --rm credentials [NAME...]       names or addresses of the server beside nyala and localhost
set -eu
umask 077
cd /etc/nyala

if [ ! -e server.crt ]; then
    names=DNS:nyala,DNS:localhost,IP:127.0.0.1
    for name; do
        case $name in
            *:* | *[0-9].[0-9]*[0-9]) names=$names,IP:$name ;;
            *) names=$names,DNS:$name ;;
        esac
    done
    openssl req -batch -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=nyala \
        -addext "subjectAltName=$names" -keyout server.key -out new.crt
    mv new.crt server.crt
fi

# token FILE USER [option...]
token() {
    file=$1
    shift
    [ -e "$file" ] || {
        new=$(nyala token create "$@" --tokens tokens.json)
        echo "$new" >"$file"
    }
}
token root.token root --role admin
token /monitoring/prometheus.token prometheus
[ -e /monitoring/grafana.password ] || openssl rand -hex 16 >/monitoring/grafana.password

# The server's user reads the one directory. Of the other, each image has a user of its own.
chown 10001:10001 server.crt server.key tokens.json root.token
chmod 0644 server.crt
cp server.crt /monitoring/server.crt
chmod 0444 /monitoring/*
chmod 0755 /etc/nyala /monitoring
