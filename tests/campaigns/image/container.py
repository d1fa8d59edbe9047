"""Runs an image as a service of docker-compose.yml says, without a container engine: namespaces for files, processes,
network and names, a read-only root, no capability but those that are added, and no new privileges.

What an engine has beside that is missing: its filter of system calls, control groups, and user namespaces.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.campaigns.image.dockerfile import ROOT
from tests.campaigns.image.layers import Image

HOSTS = "127.0.0.1 localhost nyala\n"
"""All services share one network, and only that of the server has anybody to call."""


class Volumes:
    """The named volumes: folders. A new one has the owner and the mode of the image's folder at its place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def source(self, name: str, image: Image, place: str) -> Path:
        """Return what is mounted for a volume's name, or for a path of the checkout."""
        if name.startswith("."):
            return ROOT / name
        volume = self._folder / name
        if not volume.exists():
            volume.mkdir(parents=True)
            folders = [layer / place.strip("/") for layer in image.layers]
            for folder in (folder for folder in folders if folder.is_dir()):
                shutil.copystat(folder, volume)
                os.chown(volume, folder.stat().st_uid, folder.stat().st_gid)
        return volume


class Container:
    """One container. It runs from ``start`` until its first process ends."""

    def __init__(self, image: Image, service: dict[str, Any], volumes: Volumes, room: Path) -> None:
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        self._image = image
        self._service = service
        self._volumes = volumes
        self._room = room
        self._user = str(service.get("user", image.user))
        self._process: subprocess.Popen[str] | None = None
        self._init = 0

    def start(self, network_of: Container | None = None) -> Container:
        """Start its command; ``network_of`` another container, which has a network already."""
        shutil.rmtree(self._room, ignore_errors=True)
        for name in ("merged", "upper", "work"):
            (self._room / name).mkdir(parents=True)
        (self._room / "hosts").write_text(HOSTS)
        enter = [] if network_of is None else ["nsenter", f"--net=/proc/{network_of._init}/ns/net"]
        kinds = ["--mount", "--pid", "--ipc", "--uts", *(["--net"] if network_of is None else [])]
        words = [*enter, "unshare", *kinds, "--fork", "--kill-child", "sh", "-eu", "-c", self._script()]
        with (self._room / "log").open("w") as log:
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while not self._init and self._process.poll() is None:
            self._init = int((children.read_text().split() or ["0"])[0])
            time.sleep(0.01)
        return self

    def _script(self) -> str:
        root = self._room / "merged"
        layers = f"lowerdir={self._image.lower},upperdir={self._room}/upper,workdir={self._room}/work"
        lines = [
            "mount --make-rprivate /",
            f"mount -t overlay overlay -o {layers} {root}",
            f"mount -t proc proc {root}/proc",
            f"mount -t tmpfs -o nosuid,nodev,noexec tmpfs {root}/dev/shm",
            f"mount --bind {self._room}/hosts {root}/etc/hosts",
        ]
        for each in self._service.get("tmpfs", []):
            place, _, options = each.partition(":")
            lines.append(f"mount -t tmpfs -o nosuid,nodev,noexec,mode=1777,{options} tmpfs {root}{place}")
        for each in self._service.get("volumes", []):
            lines += self._mount(*each.split(":"))
        lines += [f"mount -o remount,ro {root}", "ip link set lo up"]
        lines.append(f"exec chroot {root} {shlex.join(self._command())}")
        return "\n".join(lines)

    def _mount(self, name: str, place: str, mode: str = "rw") -> list[str]:
        source, target = self._volumes.source(name, self._image, place), f"{self._room}/merged{place}"
        made = f"mkdir -p {target}" if source.is_dir() else f"touch {target}"
        again = [f"mount -o remount,bind,ro {target}"] if mode == "ro" else []
        return [made, f"mount --bind {source} {target}", *again]

    def _command(self) -> list[str]:
        entry = self._service.get("entrypoint", self._image.words("ENTRYPOINT"))
        own = [] if "entrypoint" in self._service else self._image.words("CMD")
        return self._as_user([*entry, *self._service.get("command", own)])

    def _as_user(self, words: Sequence[str]) -> list[str]:
        user, _, group = self._user.partition(":")
        kept = "".join(f",+{name.lower()}" for name in self._service.get("cap_add", []))
        drop = [f"--bounding-set=-all{kept}", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
        environment = self._image.environment | self._service.get("environment", {})
        pairs = [f"{name}={value}" for name, value in environment.items()]
        who = [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        return ["setpriv", *who, *drop, "env", "-i", *pairs, *words]

    def run(self, words: Sequence[str], check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as an engine's ``exec``: same user, same files, same network."""
        spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wdns=/"]
        enter = ["nsenter", f"--target={self._init}", *spaces]
        done = subprocess.run([*enter, *self._as_user(words)], capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def line(self) -> str:
        """Wait for the next line that it prints."""
        assert self._process and self._process.stdout
        return self._process.stdout.readline().strip()

    def log(self) -> str:
        """What it has written to standard error."""
        return (self._room / "log").read_text()

    def status(self) -> dict[str, str]:
        """What the kernel says of its first process: user, capabilities."""
        lines = Path(f"/proc/{self._init}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to its first process, if it runs."""
        if self._process and self._process.poll() is None:
            os.kill(self._init, number)

    def wait(self, seconds: float) -> int:
        """Return the exit code. Raises TimeoutExpired."""
        assert self._process
        return self._process.wait(seconds)
