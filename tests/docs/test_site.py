"""The documentation as a site: it builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.docs.pages import REPOSITORY, all_pages
from tests.docs.site import build_site

NO_PAGES = ("README.md", "profiler/cli/SKILL.md")
PAGES = {page.name: page for page in all_pages() if page.name not in NO_PAGES}
_COUNTED = ("table", "tr", "ul", "ol", "li", "blockquote", "pre", "h1", "h2", "h3")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build_site(tmp_path_factory.mktemp("built"))


class Loaded(HTMLParser):
    """Collects what a page loads: everything with an address but what one clicks on."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag not in ("a", "form"):
            self.found += [v for k, v in attributes if k in ("src", "srcset", "href", "data") and v]


def test_pages_load_nothing_from_elsewhere(site):
    """No script, style, font or picture has an address on another machine."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.found or page.name == "example-report.html"  # which has all in itself
        assert [url for url in loaded.found if re.match(r"(\w+:)?//", url)] == [], page.name
    for style in site.rglob("*.css"):
        found = re.findall(r"url\(\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8"))
        assert found == [], style.name


def test_the_first_page_leads_to_a_whole_report(site):
    """A click on the first page opens the page of a real run, which holds its tables itself."""
    assert 'href="example-report.html"' in (site / "index.html").read_text(encoding="utf-8")
    report = (site / "example-report.html").read_text(encoding="utf-8")
    assert "MI300X" in report
    assert "Content-Security-Policy" in report
    assert report.count("transformer") > 20


def test_every_command_is_in_the_reference(site):
    """The page of the command line has a heading for each command, and its options."""
    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h2 id=\"([\w-]+)\"", page)
    from typer.main import get_command

    from profiler.cli.main import command_line

    commands = get_command(command_line()).commands
    expected = [
        f"profile-sd3-{name}" if each is command else f"profile-sd3-{name}-{each.name}"
        for name, command in commands.items()
        for each in getattr(command, "commands", {"": command}).values()
    ]
    assert headings == expected
    assert "--fail-over" in page
    text = re.sub(r"<[^>]*>", "", page)
    assert "\\" not in text.partition("profile-sd3 run")[2].partition("</article>")[0]


def test_python_reference_has_the_public_names(site):
    """Each public function and class has an entry with its docstring."""
    import profiler

    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in profiler.__all__:
        if name != "__version__":
            assert re.search(rf"id=\"profiler\.[\w.]*\b{name}\"", page), name


def test_sources_are_not_published(site):
    """Scripts beside the pages stay out of the site."""
    assert list(site.rglob("*.py")) == []


@pytest.mark.parametrize("name", PAGES)
def test_page_is_the_same_on_github_and_on_the_site(name):
    """Lists, tables, code and headings: what CommonMark makes of a page, mkdocs makes of it."""
    markdown = pytest.importorskip("markdown", reason="mkdocs is missing: install the docs extra")
    from markdown_it import MarkdownIt

    extensions = ["tables", "attr_list", "md_in_html", "pymdownx.superfences"]
    github = MarkdownIt("commonmark", {"html": True}).enable("table").render(PAGES[name].text)
    ours = markdown.markdown(PAGES[name].text, extensions=extensions)
    assert counts(ours) == counts(github)


def counts(html):
    return {tag: len(re.findall(rf"<{tag}[\s>]", html)) for tag in _COUNTED}


def test_a_list_behind_a_paragraph_is_noticed():
    """The difference that the test above is there for."""
    markdown = pytest.importorskip("markdown", reason="mkdocs is missing: install the docs extra")
    from markdown_it import MarkdownIt

    text = "words\n- one\n- two\n"
    assert counts(MarkdownIt().render(text))["li"] == 2
    assert counts(markdown.markdown(text))["li"] == 0


def test_configuration_is_where_it_is_looked_for():
    """mkdocs.yml lies at the top, and its hook below docs."""
    assert (REPOSITORY / "mkdocs.yml").is_file()
    assert (REPOSITORY / "docs" / "hooks.py").is_file()
