# SPDX-License-Identifier: GPL-2.0-or-later
"""A real etcd of one member on loopback that can be stopped, killed and started again."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from dcmctl.cluster.etcd import encode
from tests.framework.port import free_port

START_S = 60.0


class Server:
    """etcd with its data in `folder`; `tls` has ca, cert and key for it."""

    def __init__(self, folder: Path, tls: dict[str, Path] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.tls = tls
        self.port = 0
        self.peer = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._tls = ssl.create_default_context(cafile=str(tls["ca"])) if tls else None

    @property
    def url(self) -> str:
        return f"http{'s' * (self.tls is not None)}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start etcd on the ports it had, or on others if these are taken."""
        for _ in range(5):
            if not self.port:
                self.port, self.peer = free_port(), free_port()
            command = [
                "etcd", "--name", "one", "--data-dir", str(self.folder / "data"),
                "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                "--listen-peer-urls", f"http://127.0.0.1:{self.peer}",
                "--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer}",
                "--initial-cluster", f"one=http://127.0.0.1:{self.peer}", "--logger=zap",
                "--enable-v2=false", "--unsafe-no-fsync",
            ]  # fmt: skip
            if "--unsafe-no-fsync" not in help_text():
                command.remove("--unsafe-no-fsync")
            if self.tls:
                command += [f"--cert-file={self.tls['cert']}", f"--key-file={self.tls['key']}"]
            with (self.folder / "log").open("ab") as log:
                self.process = subprocess.Popen(command, stdout=log, stderr=log)
            if self._wait():
                return
            self.port = 0
        raise AssertionError(f"etcd does not start: {(self.folder / 'log').read_text()[-3000:]}")

    def _wait(self) -> bool:
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                with urllib.request.urlopen(
                    f"{self.url}/health", timeout=2, context=self._tls
                ) as answer:
                    if json.loads(answer.read())["health"] == "true":
                        return True
            except (OSError, ValueError):
                pass
            time.sleep(0.1)
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def ask(self, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}{path}",
            json.dumps(body).encode(),
            {"Authorization": token} if token else {},
        )
        with urllib.request.urlopen(request, timeout=10, context=self._tls) as answer:
            value: dict[str, Any] = json.loads(answer.read())
        return value

    def put(self, key: str, value: str) -> None:
        self.ask("/v3/kv/put", {"key": encode(key), "value": encode(value)})

    def delete(self, key: str) -> None:
        self.ask("/v3/kv/deleterange", {"key": encode(key)})

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def help_text() -> str:
    done = subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
