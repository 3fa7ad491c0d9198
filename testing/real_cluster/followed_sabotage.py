"""The sabotaged model of the demo, rolled back while a console stands open beside it on one page."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path

from demo import bad_model
from demo.api import Api
from demo.learning import Learned
from demo.narrator import Narrator
from demo.settings import AGENT, Settings
from testing.browsers.chromium import missing
from testing.browsers.console_in_browser import ConsoleInBrowser, console_in_browser

SECONDS = 600.0
PHASES = ("Progressing", "RolledBack")


@dataclass
class FollowedSabotage:
    """What the cluster said, and what the page showed meanwhile."""

    back: bad_model.RolledBack
    seen: list[str] = field(default_factory=list)
    """Phases, in the order in which the open page came to show them."""
    last: str = ""
    """The page's text when it was over."""
    complaints: list[str] = field(default_factory=list)
    """What the browser said of errors."""
    without_browser: str = ""
    """Why there was none."""


def followed_sabotage(
    api: Api, settings: Settings, learned: Learned, narrator: Narrator, folder: Path
) -> FollowedSabotage:
    """Roll the sabotaged model out, follow it until it is rolled back, and put the agent's own model back.

    Raises:
        StoryFailedError: it was not rolled back.
    """

    def story() -> bad_model.RolledBack:
        return bad_model.watch_it_come_back(api, settings, narrator, learned.model_uri, learned.model_sha256)

    if why := missing():
        found = FollowedSabotage(story(), without_browser=why)
    else:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(api.run("config", "view", "--raw", "--flatten", "--minify"))
        arguments = ("--kubeconfig", str(kubeconfig), "-n", settings.namespace)
        with console_in_browser(arguments) as page:
            page.go(f"{settings.namespace}/agents/{AGENT}")
            page.settles()
            page.picture("console-demo-agent")
            page.go(f"{settings.namespace}/rollouts/{AGENT}")
            found = _follow(page, story)
            page.picture("console-demo-rolled-back")
            found.complaints = page.complaints
    bad_model.restore(api, settings)
    return found


def _follow(page: ConsoleInBrowser, story: Callable[[], bad_model.RolledBack]) -> FollowedSabotage:
    seen: list[str] = []
    with ThreadPoolExecutor(1) as pool:  # the browser's driver stays in the thread that started it
        running = pool.submit(copy_context().run, story)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not (running.done() and (running.exception() or PHASES[-1] in seen)):
            text = page.shows()
            for phase in PHASES:
                if phase in text and phase not in seen:
                    seen.append(phase)
                    page.picture(f"console-demo-{phase.lower()}")
            page.pause(0.5)
        return FollowedSabotage(running.result(), seen, page.shows())
