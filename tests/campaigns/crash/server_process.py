"""A server to be killed: the real one, with memory stores so small that it flushes all the time.

python tests/campaigns/crash/server_process.py DIRECTORY [PORT [OPTIONS]]      prints {"location": ...} when it listens

OPTIONS are JSON, of the store: others than those below.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from nyala.engine.options import StoreOptions
from nyala.flight_server.serve.lifecycle import run_server
from nyala.flight_server.settings.config import ServerConfig
from tests.campaigns.options import store_at

OPTIONS = StoreOptions(flush_bytes=96 << 10, flush_deltas_bytes=32 << 10, wal_segment_bytes=128 << 10, scan_threads=2)


def main() -> None:
    options = OPTIONS.model_copy(update=json.loads(sys.argv[3])) if len(sys.argv) > 3 else OPTIONS
    run_server(
        lambda: store_at(sys.argv[1], options),
        f"grpc://127.0.0.1:{sys.argv[2] if len(sys.argv) > 2 else 0}",
        ServerConfig(),
        lambda location: print(json.dumps({"location": location}), flush=True),
    )


if __name__ == "__main__":
    main()
