"""Chromium without a window, over the pipe of its DevTools protocol: one browser, one page at a time."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe"
)
PATIENCE = 60  # seconds for an answer


class Browser:
    """`user`: an empty folder for what it keeps."""

    def __init__(self, user: Path) -> None:
        assert CHROMIUM is not None
        (self._read, to_us), (to_it, self._write) = os.pipe(), os.pipe()

        # It reads from 3 and writes to 4. The shell puts them there: `preexec_fn` would fork this process, which JAX forbids.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_it, to_us)]
        it = [CHROMIUM, *QUIET.split(), f"--user-data-dir={user}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"', *map(str, ends), *it],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        os.close(to_us)
        os.close(to_it)
        os.set_blocking(self._read, False)
        self._rest, self._number, self._session = b"", 0, ""
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def show(self, page: Path, width: int, scheme: str) -> None:
        """The page at so many pixels, "light" or "dark"; `said` has what its console says."""
        self.said.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.resolve().as_uri())
        until = time.monotonic() + PATIENCE
        while not self.value("document.readyState == 'complete' && location.protocol == 'file:'"):
            assert time.monotonic() < until, f"{page} is not shown"

    def value(self, script: str) -> Any:
        """What an expression is in the page."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        asked |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            one = self._next(until)
            if one.get("id") == self._number:
                assert "error" not in one, one
                result: dict[str, Any] = one["result"]
                return result
            if one.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                self.said.append(json.dumps(one["params"]))

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert time.monotonic() < until, "the browser is silent"
            try:
                self._rest += os.read(self._read, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
