"""How a run and an analysis show themselves in a notebook."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import profiler
from profiler.analysis import words
from profiler.report.files import as_html
from profiler.tools.sources import load
from profiler.trace import BundleWriter, Drop, DropKind, RunInfo
from tests.report.rendered import printed
from tests.runs import why
from tests.trace.samples import small_bundle, small_calls

_SAMPLE = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"
_SCRIPT = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import profiler
run = profiler.load({path!r})
for shown in (run, profiler.analyze(run)):
    data, _ = shell.display_formatter.format(shown)
    print(sorted(data), data["text/html"].count("<table>"), "transformer" in data["text/html"])
"""


def _shown(of: object) -> str:
    """Its HTML, with plain blanks before units."""
    return as_html(of).replace("\N{NO-BREAK SPACE}", " ")


def _cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_run_is_its_submodules() -> None:
    """A row a submodule and device in the report's order and columns, from calls alone."""
    run = load(_SAMPLE)
    html = _shown(run)
    head, *rows = _cells(html)
    assert head == ["submodule", "device", "calls", "duration ms", "first call ms", "median ms"]
    assert ["transformer", "cpu:0", "2", "34.4", "20.8", "17.2"] in rows
    assert [row[0] for row in rows] == [
        "text_encoder",
        "text_encoder_2",
        "text_encoder_3",
        "transformer",
        "vae",
    ]
    assert "tiny-sd3, StableDiffusion3Pipeline, 9 calls, 2,057 commands" in html


def test_an_analysis_says_its_headline_and_findings() -> None:
    """The headline of the report, submodules with their share, and the worst findings: what the
    terminal prints of them, in as many columns as there is room for."""
    analysis = profiler.analyze(_SAMPLE)
    html = _shown(analysis)
    assert "62.7 ms for 2 steps: 2 CPUs compute 10 % to 67 %" in html
    assert ["transformer", "cpu:0", "2", "34.4", "54.9", "20.8", "17.2"] in _cells(html)
    terminal = printed(analysis)
    for cell in ("elapsed ms", "first call ms", "34.4", "20.8"):
        assert cell in terminal
    assert [analysis.findings[0].severity, words(analysis.findings[0]).title] in _cells(html)
    assert "more in <code>" not in html
    longer = replace(analysis, findings=(*analysis.findings, analysis.findings[0]))
    assert "… and 1 more in <code>analysis.findings</code>" in _shown(longer)


def _hostile_run(folder: Path) -> profiler.Run:
    """A run whose model and submodule are markup."""
    name = "<script>alert(1)</script>" + "x" * 150
    call, commands, _ = small_calls()[0]
    with BundleWriter.create(folder, "hostile") as bundle:
        bundle.write_call(replace(call, submodule=name), commands, ())
        return load(bundle.finish(RunInfo(producer="capture", model="<img src=x>")))


def test_every_table_is_text_of_no_colour(tmp_path: Path) -> None:
    """Each table, and each frame of a run, shows itself as Polars' and as pandas' HTML: its first
    column by name, no markup of a name, nothing to fetch, no colour that a dark notebook lacks."""
    run = _hostile_run(tmp_path)
    analysis = profiler.analyze(run)
    frames = {**analysis.tables(), "calls": run.calls, "commands": analysis.commands}
    shown = {name: frame._repr_html_() for name, frame in frames.items()}
    shown |= {
        f"pandas {name}": analysis.to_pandas(name)._repr_html_() for name in analysis.tables()
    }
    shown["pandas run"] = run.to_pandas()._repr_html_()
    assert len(shown) > 80
    for name, html in shown.items():
        first = frames[name.removeprefix("pandas ").replace("run", "commands")].columns[0]
        assert f"<th>{first}</th>" in html, name
        assert not re.search(r"<(script|img|link|iframe)|https?:|url\(|color|background", html), (
            name
        )
    assert "&lt;script&gt;" in shown["pandas run"]


def test_names_are_no_markup(tmp_path: Path) -> None:
    """A submodule whose name is a script is text in either table, and a long one is cut."""
    run = _hostile_run(tmp_path)
    for shown in (run, profiler.analyze(run)):
        html = as_html(shown)
        assert "&lt;script&gt;" in html
        assert "<script" not in html
        assert "<img" not in html
        assert len(html) < 4500


def test_it_is_small_and_has_no_colours(tmp_path: Path) -> None:
    """Light and dark notebooks both read it: no colour is set; two kilobytes are enough."""
    for shown in (load(small_bundle(tmp_path)), profiler.analyze(_SAMPLE)):
        html = as_html(shown)
        assert "color" not in html
        assert "#" not in html
        assert len(html) < 4000


def test_any_notebook_may_ask_for_it() -> None:
    """`_repr_html_` is that summary, of a run and of an analysis."""
    run = load(_SAMPLE)
    for shown in (run, profiler.analyze(_SAMPLE)):
        assert shown._repr_html_() == as_html(shown)


def test_ipython_shows_it(tmp_path: Path) -> None:
    """In IPython both types come with the summary as HTML and their line as text."""
    pytest.importorskip("IPython", reason="needs the notebook extra")
    script = tmp_path / "shown.py"
    script.write_text(_SCRIPT.format(path=str(_SAMPLE)))
    command = [sys.executable, "-W", "ignore", str(script)]
    environment = {"PYTHONPATH": str(_SAMPLE.parents[1]), "IPYTHONDIR": str(tmp_path), "HOME": "/"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == [
        "['text/html', 'text/plain'] 1 True",
        "['text/html', 'text/plain'] 2 True",
    ]


def test_without_ipython_nothing_is_loaded() -> None:
    """`import profiler` loads neither IPython nor a report."""
    code = "import sys, profiler; print([name for name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=_SAMPLE.parents[1],
    )
    assert "IPython" not in done.stdout
    assert "profiler.report" not in done.stdout


def test_drops_are_said() -> None:
    """What a run lacks stands in its first line, with where to look; nothing where it is whole."""
    whole = load(_SAMPLE)
    lost = Drop(DropKind.DROPPED_EVENTS, "000.pb", 3, "000.pb", why("left out"))
    assert "10 drops (run.drops)" in as_html(replace(whole, drops=(lost,) * 10))
    assert "drop" not in as_html(whole)
