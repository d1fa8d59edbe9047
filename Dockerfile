# The wheel is built in one stage and installed in the next; the last has no compiler and no package cache.
# The base is pinned by its digest: move it on purpose, with
#   docker buildx imagetools inspect python:3.11-slim-bookworm
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY nyala nyala
COPY pyspark_nyala pyspark_nyala
COPY schemas schemas
COPY engine engine
COPY flight_server flight_server
COPY clients clients
COPY java java
RUN python -m venv /opt/nyala \
    && /opt/nyala/bin/pip install --no-cache-dir --disable-pip-version-check '.[server]'

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin nyala \
    && install -d -o 10001 -g 10001 -m 0700 /data /var/cache/nyala
COPY --from=build /opt/nyala /opt/nyala
ENV PATH=/opt/nyala/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NYALA_CACHE_DIR=/var/cache/nyala
USER 10001

# Compile the kernels into the image, for the level of the machine that builds it. On one without that level
# they compile again at the start, into the same directory, which is a volume: it can be written to when the root of the
# container cannot.
RUN nyala warmup

VOLUME ["/data", "/var/cache/nyala"]
EXPOSE 8815
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["nyala", "health"]
# In a container 127.0.0.1 is the container's own: nobody outside could reach it. So the server listens on all addresses,
# which it does only when told --insecure, as there is no TLS or login yet. Who reaches it is decided by what is published:
# -p 127.0.0.1:8815:8815 lets this machine alone in.
CMD ["nyala", "serve", "--data", "/data", "--listen", "grpc://0.0.0.0:8815", "--insecure"]
