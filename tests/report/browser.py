"""Chromium, without a screen: opens a page from a file, runs a script in it, and hands back what the script found."""

import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--disable-background-networking", "--disable-extensions", "--no-first-run",
    "--hide-scrollbars", "--disable-dev-shm-usage", "--enable-logging=stderr",
]  # fmt: skip
SECONDS, TRIES = 90, 2  # of patience

# First in the page: what goes wrong is kept, and so is whatever a page would ask of a network.
LISTEN = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
for (const level of ["error", "warn"]) {
  const told = console[level];
  console[level] = (...words) => { problems.push(words.join(" ")); told.apply(console, words); };
}
</script>"""
# Last: the page gives way to what was found, which keeps the answer short.
ANSWER = """<script>
addEventListener("load", async () => {
  let found;
  try { found = await (async () => { %s })(); } catch (error) { found = { failure: String(error.stack || error) }; }
  const answer = JSON.stringify({ found, problems });
  document.querySelectorAll(".js-plotly-plot").forEach((one) => Plotly.purge(one));
  document.documentElement.innerHTML = "<head></head><body><pre id='answer'></pre></body>";
  document.getElementById("answer").textContent = answer;
});
</script>"""


@dataclass(frozen=True)
class Browser:
    path: str
    folder: Path

    @classmethod
    def here(cls, folder: Path) -> "Browser":
        found = next((path for name in NAMES if (path := shutil.which(name))), None)
        if found is None:
            pytest.skip("no chromium here: apt-get install chromium")
        return cls(found, folder)

    def run(self, page: Path, script: str, options: Sequence[str] = ()) -> dict:
        """What `script`, the body of an async function, returns in the page, and all problems that it had."""
        whole = page.read_text("utf-8")
        copy = page.with_name(f"{page.stem}-run.html")
        parts = whole.replace("<head>", f"<head>{LISTEN}", 1), ANSWER % script
        copy.write_text("".join(parts), "utf-8")
        done = self._start(copy, 4000, "--window-size=1300,1000", "--dump-dom", *options)
        answer = re.search(r"<pre id=\"answer\">(.*?)</pre>", done.stdout, re.DOTALL)
        assert answer, f"no answer: {done.stdout[-300:]} {done.stderr[-1000:]}"
        return json.loads(html.unescape(answer[1]))

    def screenshot(self, page: Path, out: Path, size: str, options: Sequence[str] = ()) -> None:
        self._start(page, 1500, f"--window-size={size}", f"--screenshot={out}", *options)
        assert out.stat().st_size > 10_000

    def _start(self, page: Path, budget: int, *options: str) -> subprocess.CompletedProcess[str]:
        """`budget`: ms of the page's own time, which stands still while it works; surfaces draw sixty frames of each
        second of it, so more costs much."""
        profile = f"--user-data-dir={tempfile.mkdtemp(dir=self.folder)}"
        command = [self.path, *FLAGS, profile, f"--virtual-time-budget={budget}", *options, page.resolve().as_uri()]
        for _ in range(TRIES):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._finish(command)
        pytest.fail(f"chromium gave no answer {TRIES} times: {' '.join(command)}")

    def _finish(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """With all its processes gone, whatever became of it: now and then one waits for ever."""
        environment = {**os.environ, "HOME": str(self.folder)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as process:
            try:
                out, error = process.communicate(timeout=SECONDS)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, process.returncode, out, error)
