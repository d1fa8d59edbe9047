"""Tells systemd, if it started this process, when the server is ready and when it stops: ``sd_notify(3)``."""

from __future__ import annotations

import logging
import os
import socket

_LOG = logging.getLogger("nyala.flight_server")


def tell_manager(state: str) -> None:
    """Tell the service manager, systemd, that the process is ready or stops: send ``READY=1`` or ``STOPPING=1`` to the
    socket that ``NOTIFY_SOCKET`` names; without one, do nothing."""
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name  # a name of its own, not in the file system
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
            there.sendto(state.encode(), address)
    except OSError as error:
        _LOG.warning("the service manager could not be notified of %s: %s", state, error)
