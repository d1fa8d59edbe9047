"""Ports for servers that stop and come back.

They lie below the range from which the system takes the ports of clients. In that range a client that asks a server
which is away may be given the server's port for its own end, and is then connected with itself; or another process
gets it. In both cases the server cannot come back.
"""

import socket
from random import SystemRandom

_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port of this machine where nobody listens."""
    random = SystemRandom()
    while True:
        port = random.choice(_PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
