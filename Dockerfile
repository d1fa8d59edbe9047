# The server with TLS and tokens: docs/deployment.md, "In a container". One stage builds; the other has no compiler, no
# sources and no package cache. The base is pinned by its digest: move it on purpose, with
#   docker buildx imagetools inspect python:3.11-slim-bookworm
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
WORKDIR /src

# All that comes from an index is named with its hashes (`make lock` renews the files), and nothing of it is compiled.
COPY deploy/requirements.txt deploy/requirements-build.txt ./
RUN python -m venv /opt/build \
    && python -m venv --without-pip /opt/nyala \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-build.txt \
    && /opt/build/bin/pip --python /opt/nyala/bin/python install --no-cache-dir --require-hashes --only-binary :all: \
        -r requirements.txt

COPY pyproject.toml README.md LICENSE ./
COPY nyala nyala
COPY pyspark_nyala pyspark_nyala
COPY schemas schemas
COPY engine engine
COPY flight_server flight_server
COPY clients clients
COPY java java
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /tmp/dist . \
    && /opt/build/bin/pip --python /opt/nyala/bin/python install --no-index --no-deps /tmp/dist/*.whl

# Compile the kernels for every processor that the image may run on, as `make wheel` does: no container compiles at its
# start, and the machine code is nothing that the server could write to.
WORKDIR /
RUN /opt/nyala/bin/python -m nyala.engine.kernels.compile.making

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
RUN groupadd --gid 10001 nyala \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin nyala \
    && install -d -o 10001 -g 10001 -m 0700 /data
COPY --from=build /opt/nyala /opt/nyala
ENV PATH=/opt/nyala/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
VOLUME ["/data"]
EXPOSE 8815 8816
STOPSIGNAL SIGTERM
# Whether the process lives, which needs no token. The certificate is that of the server's public name, not of 127.0.0.1,
# and nothing secret is sent: so it is not checked.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", "import ssl, urllib.request as u; \
    u.urlopen('https://127.0.0.1:8816/healthz', timeout=8, context=ssl._create_unverified_context())"]
ENTRYPOINT ["nyala"]
# Other machines reach this address, so it has TLS and asks for tokens: mount server.crt, server.key and tokens.json at
# /etc/nyala. Without them the start says which one is missing.
CMD ["serve", "--data", "/data", "--listen", "grpc+tls://0.0.0.0:8815", "--http-port", "8816", \
    "--set", "http_host=0.0.0.0", "--tls-cert", "/etc/nyala/server.crt", "--tls-key", "/etc/nyala/server.key", \
    "--tokens", "/etc/nyala/tokens.json"]
