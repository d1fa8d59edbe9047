"""A headless Chromium, driven by its DevTools protocol over two pipes: no driver and no further package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 60.0


def program() -> str | None:
    """Return the path of a Chromium; None if none is installed."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One window. Use it in a ``with`` statement."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 1250) -> None:
        chromium = program()
        assert chromium is not None
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
        command = [chromium, *options, *quiet, f"--user-data-dir={folder}", f"--window-size={width},{height}"]
        # DevTools reads the descriptor 3, and writes to 4.
        move = f'exec "$@" 3<&{theirs_read} 4>&{theirs_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", move, "bash", *command, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(theirs_read, theirs_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_read)
        os.close(theirs_write)
        self._read, self._write = ours_read, ours_write
        self._received = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        """What pages complained of: errors of scripts, and what the policy of the page forbids."""
        self._events: list[str] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        (page,) = (each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command, and return its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        sent = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._write, json.dumps(sent).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._received += more
        first, _, self._received = self._received.partition(b"\0")
        message = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, told: dict[str, Any]) -> None:
        self._events.append(event)
        if event == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])

    def open(self, url: str) -> None:
        """Show a page, and wait until it is loaded."""
        self._events.clear()
        self.ask("Page.navigate", url=url)
        self.wait_loaded()

    def wait_loaded(self) -> None:
        """Return when a page that has been asked for is loaded."""
        while "Page.loadEventFired" not in self._events:
            self._next()

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Return when an expression is true."""
        deadline = time.monotonic() + _SECONDS
        while not self.value(expression):
            assert time.monotonic() < deadline, f"never: {expression}"
            time.sleep(0.05)

    def key(self, name: str, code: int, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **typed)

    def tab(self) -> None:
        """Move the focus on."""
        self.key("Tab", 9)

    def enter(self) -> None:
        """Press what has the focus."""
        self._events.clear()
        self.key("Enter", 13, "\r")

    def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark``."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def size(self, width: int, height: int) -> None:
        """Have a window of this size, in pixels."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def has_scripts(self, value: bool) -> None:
        """Run the scripts of pages, or not."""
        self.ask("Emulation.setScriptExecutionDisabled", value=not value)

    def screenshot(self, path: Path) -> None:
        """Write what the window shows to a PNG."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)
