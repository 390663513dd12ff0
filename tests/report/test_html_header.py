"""What stands above and below the sections of the page: key figures, provenance, drops."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib

import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.provenance import TraceFile, embedded_trace, trace_files
from profiler.report import body_of, header_html, html_page
from profiler.tools.sources import load
from profiler.trace import Drop, DropKind
from tests.report.rendered import report_of
from tests.runs import Command, make_call, make_run, make_span, tiny_run, why, write_tiny_bundle


@pytest.fixture
def bundle(tmp_path):
    return write_tiny_bundle(tmp_path)


def plain(text):
    return re.sub(r"<[^>]+>", " ", text).replace("\N{NO-BREAK SPACE}", " ")


def header(run):
    return header_html(report_of(analyze(run)))


def provenance(analysis, source=None):
    sections = body_of(report_of(analysis, source=source)).sections
    return sections[sections.index('id="provenance"') :]


def columns(run):
    text = header(run)["bookkeeping"]
    return int(re.search(r"--columns:(\d+)", text)[1]), text.count('class="value"')


def test_no_key_figure_stands_alone():
    """Up to seven figures share one row; more share two, of which the last lacks one at most."""
    assert columns(tiny_run()) == (7, 7)
    names = [f"part_{i}" for i in range(3)]
    late = [Command(i, "rbln:0", "q", "compute", "k", 100 * i + 10, 900) for i in range(3)]
    calls = [make_call(i, name, 100 * i, 100 * i + 50) for i, name in enumerate(names)]
    spans = [make_span("pipeline", "P", 0, 1200), make_span("stage", "denoise", 0, 1200)]
    wide, figures = columns(make_run(calls, late, spans))
    assert figures > 7
    assert figures in (2 * wide, 2 * wide - 1)


def test_the_accounting_stands_below_the_key_figures():
    """The identity with all its terms is in the header."""
    text = plain(header(tiny_run())["bookkeeping"])
    assert text.index("End to end 1.00 µs = calls 670 ns") > text.index("Unaccounted")


def test_files_have_sizes_and_hashes(bundle):
    """The merged trace, the manifest and the host file each with the SHA-256 that any tool gives,
    and the call files together."""
    found = {file.name: file for file in trace_files(bundle)}
    for name in ("manifest.json", "merged.pb", "host.pb"):
        data = (bundle / name).read_bytes()
        assert found[name] == TraceFile(name, len(data), hashlib.sha256(data).hexdigest())
    calls = list(bundle.glob("0*.pb"))
    assert found["*.pb"] == TraceFile("*.pb", sum(p.stat().st_size for p in calls), count=4)


def test_provenance_names_everything(bundle):
    """Command line, versions, hardware, settings, files and drops are all there."""
    text = plain(provenance(analyze(load(bundle)), bundle))
    digest = hashlib.sha256((bundle / "merged.pb").read_bytes()).hexdigest()
    for part in ("profile-sd3 run", "onnxruntime", "1.20.0", "Example CPU", "steps", digest):
        assert part in text
    assert "4 , " not in text
    assert "no loss was detected" in text


def test_drops_are_in_the_provenance_too():
    """Each with where, how much and why, as above the figures."""
    drops = (Drop(DropKind.DROPPED_EVENTS, "vae", -1, "events", why("the <buffer> was full")),)
    run = tiny_run(drops=drops)
    below = plain(provenance(analyze(run)))
    kind, told = "dropped events", "vae: an unknown number of events. the &lt;buffer&gt; was full"
    assert f"{kind.capitalize()} in {told}" in header(run)["bookkeeping"]
    assert re.search(rf"{kind}\s+{re.escape(told)}", below)
    assert "all that was executed" not in below


def test_a_single_trace_has_its_hash(bundle):
    """A page of one file names that file."""
    (file,) = trace_files(bundle / "merged.pb")
    assert (file.name, len(file.sha256)) == ("merged.pb", 64)


def test_subject_names_devices_and_their_hardware():
    """Cores where they are known; nothing in brackets where nothing is."""
    text = plain(header(tiny_run())["subject"])
    assert "cpu:0 (Example CPU, 2 cores), rbln:0 (CA22)" in text


def test_a_small_trace_is_in_the_page(bundle):
    """What the page holds inflates to merged.pb, byte for byte."""
    run = load(bundle)
    text = html_page(run, analyze(run), source=bundle)
    packed = re.search(r'id="page-trace">([^<]*)<', text)[1]
    assert zlib.decompress(base64.b64decode(packed)) == (bundle / "merged.pb").read_bytes()


def test_a_large_trace_is_not(bundle, monkeypatch):
    """It is known by name and size, and lies beside."""
    monkeypatch.setattr("profiler.analysis.provenance._EMBEDDED", 100)
    found = embedded_trace(bundle)
    assert (found.name, found.packed) == ("merged.pb", "")
    assert found.size == (bundle / "merged.pb").stat().st_size


def test_without_a_trace_there_is_nothing_to_embed(tmp_path):
    """A Parquet run, a folder without merged.pb, a file of another kind."""
    assert embedded_trace(None) is None
    assert embedded_trace(tmp_path) is None
    other = tmp_path / "trace.json"
    other.write_text("{}")
    assert embedded_trace(other) is None
