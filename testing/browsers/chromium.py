"""A real Chromium for tests: Debian's, driven by playwright. No browser is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def missing() -> str:
    """Why no browser can be driven here; empty where one can."""
    for module in ("playwright", "axe_playwright_python"):
        if find_spec(module) is None:
            return f"{module} is not installed: `make pages` installs requirements/browser.txt"
    if _program() is None:
        return f"none of {', '.join(PROGRAMS)} is installed: `make pages` installs Debian's chromium as root"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of playwright's, headless. Chromium's sandbox does not start as root, so there it is off."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_program(), args=arguments, timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()


def findings(page: Any) -> list[str]:
    """Violations that axe-core lists for the page: rule, element and how to mend it."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {node['html'][:200]}: {node['failureSummary']}" for item in violations for node in item["nodes"]
    ]


def _program() -> str | None:
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)
