"""The HTML page as a file: complete, offline, and safe whatever the trace says."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser

import pytest

from profiler.analysis import Selection
from profiler.analysis.analyze import analyze
from profiler.errors import OutputError
from profiler.report import html_page, write_html
from profiler.report.html.library import embedded
from profiler.report.html.page import page_scripts
from profiler.trace import Drop, DropKind
from tests.report.hostile import HOSTILE, hostile_analysis, hostile_run
from tests.runs import Command, make_run, tiny_run, why


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts = [], []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts.append((self.elements[-1][1].get("type"), data))

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(run, selection=Selection()):  # noqa: B008
    return html_page(run, analyze(run, selection))


@pytest.fixture(scope="module")
def tiny():
    return page_of(tiny_run())


@pytest.fixture(scope="module")
def hostile():
    return html_page(hostile_run(), hostile_analysis())


def rest_of(text):
    """The packed part of a page's data, as JSON."""
    (packed,) = re.findall(r'id="page-rest">(.*?)</script>', text)
    return zlib.decompress(base64.b64decode(packed)).decode()


def policy(text):
    (meta,) = [m for m in Elements(text).named("meta") if "http-equiv" in m]
    return dict(rule.split(" ", 1) for rule in meta["content"].split("; "))


def test_the_page_is_one_document(tiny):
    """It says its language and encoding, and who wrote it near its beginning."""
    page = Elements(tiny)
    assert tiny.startswith("<!doctype html>")
    assert page.named("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.named("meta")
    assert "profile-sd3" in tiny[:4096]
    assert "$" not in tiny.split("<style>")[0]


def test_nothing_points_outside(tiny):
    """No element names a file or an address: everything is in the page."""
    for tag, attributes in Elements(tiny).elements:
        assert not {"src", "srcset", "data", "action", "poster"} & set(attributes), tag
        assert attributes.get("href", "#").startswith("#")
    style = re.search(r"<style>(.*?)</style>", tiny, re.DOTALL).group(1)
    assert "url(" not in style
    assert "@import" not in style


def test_only_our_scripts_may_run(tiny):
    """The policy allows nothing but the scripts whose hashes it lists, and no inline handlers."""
    rules = policy(tiny)
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    inline = [script for kind, script in Elements(tiny).scripts if kind is None]
    assert [*inline] == [page_scripts()[0]]
    for script in page_scripts():
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules["script-src"]
    assert not [a for _, attributes in Elements(tiny).elements for a in attributes if a[:2] == "on"]


def test_hostile_names_add_no_elements(tiny, hostile):
    """A page full of hostile names has the same kinds of elements as any other."""
    ours = {"strong", "li", "bdi", "article", "b", "span"}
    usual = {tag for tag, _ in Elements(tiny).elements} | ours
    found = {tag for tag, _ in Elements(hostile).elements}
    assert found <= usual
    assert len(Elements(hostile).named("script")) == len(Elements(tiny).named("script"))
    assert "hacked" not in "".join(s for kind, s in Elements(hostile).scripts if kind is None)


def test_hostile_names_are_readable(hostile):
    """The names are there as text: in the header, the drops, the findings, the details."""
    for name in HOSTILE:
        assert html.escape(name) in hostile


def test_embedded_json_cannot_end_its_script():
    """JSON in the page holds no character that HTML reads, and gives back what went in."""
    data = {"a": list(HOSTILE), "b": "\u2028\ud800"}
    text = embedded(data)
    assert not set(text) & set("<>&\u2028")
    assert text.isascii()
    assert json.loads(text) == data


def test_numbers_that_json_lacks_are_refused():
    """NaN would break the page's JSON, so it never gets there unnoticed."""
    with pytest.raises(ValueError, match="JSON"):
        embedded({"a": float("nan")})


def test_a_name_that_is_no_unicode_is_written(tmp_path):
    """A lone surrogate from a manifest does not stop the page from being written as UTF-8."""
    run = hostile_run()
    path = tmp_path / "report.html"
    write_html(run, analyze(run), path)
    text = path.read_bytes().decode("utf-8")
    assert "한국어 이름" in text
    assert "lone surrogate" in text


def test_drops_come_first():
    """What is missing stands above the figures, with every drop and its recommendation."""
    drops = (
        Drop(DropKind.TRUNCATED_FILE, "006_transformer.pb", 512, "bytes", why("cut: copy again")),
        Drop(DropKind.DROPPED_EVENTS, "vae", -1, "events", why("the buffer was full")),
    )
    text = page_of(tiny_run(drops=drops))
    assert "Truncated file in 006_transformer.pb: 512 bytes. cut: copy again." in text
    assert "Dropped events in vae: an unknown number of events. the buffer was full." in text
    assert text.index('role="alert"') < text.index('class="facts"')


def test_no_drops_no_alarm(tiny):
    """A whole run has no alert."""
    assert 'role="alert"' not in tiny
    assert "nothing" in tiny


def test_the_accounting_identity_is_written_out(tiny):
    """The sentence has every term of the identity and the residual."""
    text = tiny.replace("\N{NO-BREAK SPACE}", " ")
    expected = (
        "End to end 1.00 µs = calls 670 ns + host work between them 90 ns + no call running 240 ns "
        "+ unaccounted 0 ns (0 %)."
    )
    assert expected in text


def test_a_selection_is_announced():
    """A page of a part of the run says what was left out of which tables."""
    text = page_of(tiny_run(), Selection(submodule=("transformer",), step=("0",)))
    assert "submodule transformer, step 0: 1 of 4 calls and 3 of 12 commands" in text


def test_a_foreign_run_has_a_page():
    """A trace of another producer, without calls and spans, is a page with its tracks."""
    run = make_run(commands=[Command(-1, "cuda:0", "stream 7", "compute", "k", 0, 50)])
    text = page_of(run)
    assert "No accounting of the whole time" in text
    assert "stream 7" in rest_of(text)


def test_what_every_page_holds_is_small(tiny):
    """Scripts, styles, texts and library leave a page of 3.3 MB 0.9 MB for its run; of the
    scripts only what the first screen needs stands there unpacked."""
    assert len(tiny.encode()) < 2.4e6
    first, late = page_scripts()
    assert len(first) < 94_500 < len(late)


def test_an_empty_run_has_a_page():
    """A run without any event is still a page that says so."""
    assert "0 commands" in page_of(make_run())


def test_times_in_the_page_are_relative(tiny):
    """No time of the run's clock reaches the page: doubles could not hold it."""
    data = next(s for kind, s in Elements(tiny).scripts if kind == "application/json")
    assert "18000000000" not in data + rest_of(tiny)
    assert json.loads(rest_of(tiny))["tables_shown"]["calls"]["values"]["start_ns"] == [
        10,
        210,
        560,
        910,
    ]


def test_every_column_is_explained(tiny):
    """Each column of each table comes with the meaning of its declaration."""
    for table in json.loads(rest_of(tiny))["tables_shown"].values():
        for column in table["columns"]:
            assert column["meaning"]
            assert len(table["values"][column["name"]]) == len(
                table["values"][table["columns"][0]["name"]]
            )


def test_a_place_that_cannot_be_written(tmp_path):
    """A missing folder is one sentence that says what to do."""
    run = tiny_run()
    with pytest.raises(OutputError, match=r"cannot write .*report\.html .*give a folder"):
        write_html(run, analyze(run), tmp_path / "missing" / "report.html")


def test_the_same_run_gives_the_same_page(tiny):
    """Writing a page twice gives the same bytes."""
    assert page_of(tiny_run()) == tiny


def test_the_page_does_not_depend_on_the_seed_of_hashes():
    """The order of devices, tracks and names is that of the run, whatever sets make of it."""
    program = (
        "import hashlib\n"
        "from profiler.analysis.analyze import analyze\n"
        "from profiler.report.html.page import html_page\n"
        "from tests.runs import tiny_run\n"
        "print(hashlib.sha256(html_page(tiny_run(), analyze(tiny_run())).encode()).hexdigest())"
    )
    pages = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "5")
    ]
    assert len({*pages}) == 1
