"""Links of README and docs: every file and every heading that they name is there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import REPOSITORY, Page, all_pages

PAGES = {page.name: page for page in all_pages()}
GENERATED = {
    "docs/reference/cli.md",
    "docs/changelog.md",
    "docs/contributing.md",
    "docs/example-report.html",
}
"""Pages that the site alone has: docs/hooks.py makes them."""


def broken(page: Page) -> list[str]:
    """What a page links to and is not there, in words."""
    found = []
    for target in page.links:
        parts = urlsplit(target)
        if parts.scheme in ("http", "https"):
            continue
        path = (REPOSITORY / page.name).parent / unquote(parts.path) if parts.path else None
        name = page.name if path is None else _name(path)
        if name is None or (name not in GENERATED and not (REPOSITORY / name).exists()):
            found.append(f"{target}: there is no such file")
        elif parts.fragment and name in PAGES and parts.fragment not in PAGES[name].anchors:
            found.append(f"{target}: {name} has no such heading")
        elif parts.scheme or parts.netloc:
            found.append(f"{target}: neither a file nor a page of the web")
    return found


def _name(path: Path) -> str | None:
    resolved = path.resolve()
    return resolved.relative_to(REPOSITORY).as_posix() if REPOSITORY in resolved.parents else None


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    """Relative links lead to files of the repository, their anchors to headings of these."""
    assert broken(PAGES[name]) == []


def test_broken_links_are_found():
    """A missing file, a missing heading, a way out of the repository, an unknown scheme."""
    text = "[a](docs/none.md) [b](README.md#none) [c](../../etc/passwd) [d](file:README.md)"
    page = Page("README.md", text + " [e](https://example.org/x#y) `[f](code.md)`", ())
    assert [line.partition(":")[2].strip() for line in broken(page)[:3]] == [
        "there is no such file",
        "README.md has no such heading",
        "there is no such file",
    ]
    assert len(broken(page)) == 4


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("# What it costs to be installed", "what-it-costs-to-be-installed"),
        ("## `profile-sd3 run`: options, …", "profile-sd3-run-options-"),
        ("### memory_devices", "memory_devices"),
    ],
)
def test_anchors_are_githubs(heading, anchor):
    """Headings become anchors by GitHub's rule."""
    assert Page("x.md", f"{heading}\n", ()).anchors == {anchor}
