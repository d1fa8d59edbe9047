# The wheel is built in one stage and installed in the next; the last has no compiler and no package cache.
FROM python:3.11-slim AS build
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

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin nyala \
    && install -d -o 10001 -g 10001 -m 0700 /data /var/cache/nyala
COPY --from=build /opt/nyala /opt/nyala
ENV PATH=/opt/nyala/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NYALA_CACHE_DIR=/var/cache/nyala
USER 10001

# Compile the kernels into the image, for the CPU it is built on. On another CPU model they compile again at first use,
# into the same directory: mount it writable there, or build the image on the model that runs it.
RUN nyala warmup

VOLUME /data
EXPOSE 8815
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "\
import json, pyarrow.flight as flight; \
client = flight.connect('grpc://127.0.0.1:8815'); \
answer = next(iter(client.do_action(flight.Action('health', b'{}')))); \
assert json.loads(answer.body.to_pybytes())['status'] == 'ok'"]
CMD ["nyala", "serve", "--data", "/data", "--listen", "grpc://0.0.0.0:8815"]
