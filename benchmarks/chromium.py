"""The Chromium in which benchmarks open pages."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

__all__ = ["WAIT", "headless_chromium"]

_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
WAIT = 60_000  # ms to start, and for a page to show something


@contextmanager
def headless_chromium() -> Iterator[Browser]:
    """This machine's Chromium, without a window; exits with a sentence where it has none."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        sys.exit("no Chromium on this machine: install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=_ARGUMENTS, timeout=WAIT)
        yield browser
        browser.close()
