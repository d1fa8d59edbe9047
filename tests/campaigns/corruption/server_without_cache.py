"""A server that keeps no page in memory: what it reads comes from the disk, every time.

python tests/campaigns/corruption/server_without_cache.py DIRECTORY      prints {"location": ...} when it listens
"""

import json
import sys

from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.serve.lifecycle import run_server
from nyala.flight_server.settings.config import ServerConfig

OPTIONS = StoreOptions(maintenance="off", page_cache_bytes=1, key_index_bytes=0)


def main() -> None:
    run_server(
        lambda: Store.open(sys.argv[1], OPTIONS),
        "grpc://127.0.0.1:0",
        ServerConfig(),
        lambda location: print(json.dumps({"location": location}), flush=True),
    )


if __name__ == "__main__":
    main()
