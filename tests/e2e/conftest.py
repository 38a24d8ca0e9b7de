"""Debian's chromium, driven by Playwright, with a profile of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def browser(profile: Path) -> Iterator[BrowserContext]:
    """One browser for a module; each test starts without cookies."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.fail("chromium is not installed: run `make setup` (it installs Debian's package), then the tests again")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile),
            executable_path=executable,
            args=ARGUMENTS,
            viewport={"width": 1280, "height": 900},
        )
        context.set_default_timeout(15_000)
        yield context
        context.close()
