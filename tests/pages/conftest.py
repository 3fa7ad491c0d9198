"""One Chromium for the session, and a console over an example loop for each test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from learnloop_operator.cli.console.change_log import ChangeLog
from learnloop_operator.cli.console.server import Console
from testing.browsers.chromium import chromium, missing
from testing.browsers.console_server import WrittenCluster, served
from testing.browsers.example_loop import ExampleLoop


@dataclass
class Looked:
    """A page in the browser, the cluster behind it, and what the browser complained about or asked of others."""

    page: Any
    root: str
    log: ChangeLog
    cluster: WrittenCluster
    loop: ExampleLoop
    console: Console
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        """Open a page of the console and wait until it is drawn."""
        self.page.goto(f"{self.root}/#/{path}")
        self.page.wait_for_selector("main h1")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    why = missing()
    if why:
        pytest.skip(why)
    with chromium() as opened:
        yield opened


@pytest.fixture
def look(browser) -> Iterator[Callable[..., Looked]]:
    """Opens a console in a fresh session: `scheme` light or dark."""
    with ExitStack() as stack:

        def open_console(scheme: str = "light") -> Looked:
            loop, log = ExampleLoop(datetime.now(UTC)), ChangeLog()
            for plural, body in loop.objects():
                log.put(plural, body)
            cluster = WrittenCluster("demo", loop.records())
            cluster.objects = {(plural, body["metadata"]["name"]): body for plural, body in loop.objects()}
            console, _ = stack.enter_context(served(cluster, log))
            context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 850})
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(60_000)
            view = Looked(page, f"http://{console.gate.hosts[0]}", log, cluster, loop, console)
            page.on("console", lambda line: line.type in ("error", "warning") and view.complaints.append(line.text))
            page.on("pageerror", lambda error: view.complaints.append(str(error)))
            page.on("request", lambda sent: sent.url.startswith(view.root) or view.complaints.append(sent.url))
            page.goto(console.gate.address)
            page.wait_for_selector("main table")
            return view

        yield open_console
