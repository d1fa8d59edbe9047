"""A TCP proxy in front of a server, whose connections break when a test says so."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """A TCP proxy that can lose what the server answers and then break all connections."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._deaf = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self) -> None:
        """From now on nothing comes back on the connections there are."""
        self._deaf = True

    def cut(self) -> None:
        """Break all connections; new ones work."""
        with self._lock:
            broken, self._sockets = self._sockets, []
        for connection in broken:
            with connection, suppress(OSError):  # the other side may have gone first
                connection.shutdown(socket.SHUT_RDWR)
        self._deaf = False

    def close(self) -> None:
        with suppress(OSError):  # it may be closed
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the call that waits for the next connection
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._sockets += [client, server]
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while received := source.recv(1 << 16):
                if not (is_answer and self._deaf):
                    sink.sendall(received)
        except OSError:
            return
