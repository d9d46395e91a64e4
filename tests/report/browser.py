"""Chromium, without a screen: one process for all tests, spoken to over its debugging pipe.

Options that make it dump a page and go (--dump-dom, --screenshot) need its virtual clock, and with that it gave no
answer at times; why is not known. Over the pipe the clock is real and each question has its answer, and the profile,
the processes and the pipe go when the tests do.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-extensions", "--disable-sync", "--no-first-run", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 300  # of patience with one answer; a busy machine takes its time


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(RuntimeError):
    """Chromium has gone, is silent, or says no."""


class Pipe:
    """Messages to and from one Chromium: JSON with a zero byte after each, on its descriptors 3 and 4."""

    def __init__(self, path: str, folder: Path) -> None:
        self.log = folder / "chromium.log"
        (there, self._out), (self._in, back) = (map(_above, os.pipe()) for _ in range(2))
        log = _above(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        ends = {log: 2, there: 3, back: 4}
        self._process = os.posix_spawn(
            path,
            [path, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            {**os.environ, "HOME": str(folder)},
            file_actions=[(os.POSIX_SPAWN_DUP2, end, number) for end, number in ends.items()],
            setsid=True,
        )
        for end in ends:
            os.close(end)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._send(message if session is None else {**message, "sessionId": session})
        for answer in self._messages():
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
        raise AssertionError

    def wait(self, method: str) -> None:
        """Until there has been such an event."""
        if not any(one["method"] == method for one in self.events):
            next(one for one in self._messages() if one.get("method") == method)

    def close(self) -> None:
        with contextlib.suppress(BrowserError, OSError):
            self.call("Browser.close")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)

    def _send(self, message: dict[str, Any]) -> None:
        whole = json.dumps(message).encode() + b"\0"
        while whole:
            whole = whole[os.write(self._out, whole) :]

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + SECONDS
        while True:
            while b"\0" not in self._rest:
                self._rest += self._some(end - time.monotonic())
            message, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(message)
            if "method" in answer:
                self.events.append(answer)
            yield answer

    def _some(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._in], [], [], max(0.0, seconds))
        data = os.read(self._in, 1 << 20) if ready else b""
        if not data:
            why = "has gone" if ready else f"gave no answer in {SECONDS} s"
            raise BrowserError(f"chromium {why}: {self.log.read_text('utf-8', 'replace')[-1000:]}")
        return data


def _above(descriptor: int) -> int:
    """The same beyond those that the browser needs."""
    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return other


class Tab:
    """A page from a file or a server, as it is shown to somebody with this screen and this taste."""

    def __init__(self, pipe: Pipe, session: str) -> None:
        self._pipe, self._session = pipe, session

    def show(self, page: Path | str, width: int, height: int, dark: bool, phone: bool) -> None:
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self._call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._pipe.events.clear()
        self._call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self._pipe.wait("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """What `script`, the body of an async function, returns in the page."""
        whole = f"(async () => {{ {script} }})()"
        answer = self._call("Runtime.evaluate", expression=whole, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]["exception"].get("description", answer)))
        return answer["result"].get("value")

    @property
    def problems(self) -> list[str]:
        """What the page said as a warning or an error, what nobody caught, and what the browser calls an error."""
        return [words for one in self._pipe.events if (words := _problem(one["method"], one["params"]))]

    @property
    def requests(self) -> list[str]:
        """Everything that it asked for, the page itself among it."""
        asked = [one["params"] for one in self._pipe.events if one["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in asked]

    def screenshot(self, out: Path, selector: str = "", margin: int = 0) -> None:
        """Of what is to be seen, or of a whole element with pixels around it."""
        clip = {"captureBeyondViewport": True, "clip": self._box(selector, margin)} if selector else {}
        out.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png", **clip)["data"]))

    def _box(self, selector: str, margin: int) -> dict[str, float]:
        box = f"const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
        x, y, width, height = self.run(f"{box} return [box.x + scrollX, box.y + scrollY, box.width, box.height];")
        sides = {"width": width + 2 * margin, "height": height + 2 * margin}
        return {"x": x - margin, "y": y - margin, **sides, "scale": 1}

    def print(self, out: Path) -> None:
        """As a PDF."""
        out.write_bytes(base64.b64decode(self._call("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._pipe.call(method, self._session, **parameters)


def _problem(method: str, event: dict[str, Any]) -> str:
    if method == "Runtime.exceptionThrown":
        details = event["exceptionDetails"]
        return str(details.get("exception", {}).get("description") or details["text"])
    if method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
        return " ".join(str(one.get("value", one.get("description"))) for one in event["args"])
    if method == "Log.entryAdded" and event["entry"]["level"] == "error":
        return str(event["entry"]["text"])
    return ""


class Browser:
    """One Chromium with one tab; its profile and its log are in `folder`."""

    def __init__(self, path: str, folder: Path) -> None:
        self._pipe = Pipe(path, folder)
        tabs = self._pipe.call("Target.getTargets")["targetInfos"]
        tab = next(one["targetId"] for one in tabs if one["type"] == "page")
        session = self._pipe.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._pipe.call(f"{domain}.enable", session)
        self._tab = Tab(self._pipe, session)

    def open(
        self, page: Path | str, width: int = 1300, height: int = 1000, *, dark: bool = False, phone: bool = False
    ) -> Tab:
        """The tab, with this page, a file or an address, in place of the last one."""
        self._tab.show(page, width, height, dark, phone)
        return self._tab

    def close(self) -> None:
        self._pipe.close()
