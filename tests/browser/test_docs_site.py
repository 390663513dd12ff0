"""The documentation as people read it without a network: from files, searched, in both themes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.site import build_site

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    return build_site(tmp_path_factory.mktemp("docs"))


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    """A page of its own that may load nothing but files; what else it asks for is collected."""
    context = chromium.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.elsewhere = []
    page.on(
        "request",
        lambda request: (
            page.elsewhere.append(request.url)
            if not request.url.startswith(("file:", "data:", "blob:"))
            else None
        ),
    )
    yield page
    context.close()


def test_search_finds_from_files(visit: Any, site: Path) -> None:
    """Typing words finds the heading that is about them; choosing it goes there."""
    visit.goto((site / "index.html").as_uri())
    visit.keyboard.press("/")
    visit.keyboard.type("critical path")
    found = visit.locator("a[href*='idle.html'][href*='critical-path']").first
    found.wait_for()
    found.click()
    visit.wait_for_url("**/idle.html*")
    assert visit.locator("h1").inner_text().startswith("Who waits for whom")
    assert visit.elsewhere == []


def test_every_page_opens_from_a_file_in_a_narrow_window(visit: Any, site: Path) -> None:
    """No page asks for anything but files, writes an error, or is wider than a phone's window:
    tables and code scroll in themselves."""
    errors: list[str] = []
    visit.on("pageerror", lambda error: errors.append(str(error)))
    visit.set_viewport_size({"width": 390, "height": 900})
    paths = sorted(site.rglob("*.html"))
    assert len(paths) > 50
    for path in paths:
        visit.goto(path.as_uri())
        assert visit.locator("h1").count() == 1, path.name
        wide = visit.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, (path.name, wide)
    assert visit.elsewhere == []
    assert errors == []


def test_copying_commands_leaves_out_prompts_and_output(visit: Any, site: Path) -> None:
    """What the button of a block copies can be pasted into a shell."""
    visit.goto((site / "start.html").as_uri())
    copied = visit.evaluate(
        """() => {
          const code = [...document.querySelectorAll(".highlight code")]
            .find(each => each.innerText.includes("Stages: calls, host work"));
          code.setAttribute("data-md-copying", "");  // as the theme does while it copies
          return code.innerText.trim();
        }"""
    )
    assert copied == "profile-sd3 analyze traces/ --section time | sed -n '/^Stages:/,/^$/p'"
