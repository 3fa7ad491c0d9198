"""`kubectl learnloop console` as a process, and its pages in a real Chromium, as a person opens them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testing.browsers.chromium import chromium

SECONDS = 180.0  # for each step: a busy machine is slow, not wrong

SETTLED = "() => document.querySelector('main h1') && !document.querySelector('main .reading')"


class ConsoleInBrowser:
    """One page, which stays open and receives changes; `complaints`: the browser's errors."""

    def __init__(self, page: Any, root: str) -> None:
        self._page, self._root = page, root
        self.complaints: list[str] = []
        page.set_default_timeout(SECONDS * 1000)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def go(self, path: str) -> None:
        """Open a page of the console, e.g. `team-a/rollouts/walker`, and wait until it is drawn."""
        self._page.goto(f"{self._root}/#/{path}")
        self._page.wait_for_selector("main h1")

    def sees(self, text: str, seconds: float = SECONDS) -> None:
        """Wait until the page shows a text, without a reload.

        Raises:
            playwright's TimeoutError: it does not.
        """
        self._page.locator("main").get_by_text(text).first.wait_for(timeout=seconds * 1000)

    def shows(self) -> str:
        """All text of the page."""
        return str(self._page.inner_text("main"))

    def pause(self, seconds: float) -> None:
        """Let the page go on for a while."""
        self._page.wait_for_timeout(seconds * 1000)

    def settles(self, seconds: float = SECONDS) -> None:
        """Wait until the page shows what it has asked for, or why it cannot: nothing is "Reading …" any more.

        Raises:
            playwright's TimeoutError: it still reads.
        """
        self._page.wait_for_function(SETTLED, timeout=seconds * 1000)

    def picture(self, name: str) -> None:
        """A screenshot NAME.png of a settled page in the folder that SHOTS names; none where it names none."""
        if folder := os.environ.get("SHOTS"):
            self.settles()
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@contextmanager
def console_in_browser(arguments: Sequence[str], scheme: str = "light") -> Iterator[ConsoleInBrowser]:
    """The command with these arguments, entered by the address that it prints.

    Raises:
        AssertionError: it prints no address.
    """
    command = [sys.executable, "-m", "learnloop_operator.cli.main", "console", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        guard = threading.Timer(SECONDS, process.kill)
        guard.start()
        address = process.stdout.readline().strip()
        guard.cancel()
        assert address.startswith("http://127.0.0.1:"), f"the console prints {address!r} in place of its address"
        with chromium() as browser:
            context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 850})
            page = context.new_page()
            console = ConsoleInBrowser(page, address.partition("/?")[0])
            page.goto(address)
            page.wait_for_selector("main h1", timeout=SECONDS * 1000)
            yield console
            context.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
