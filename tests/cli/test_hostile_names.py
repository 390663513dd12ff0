"""A bundle in which every name is a payload, through every subcommand and every document."""

from __future__ import annotations

import ast
import csv
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer.main

import profiler
from profiler.cli.main import command_line
from profiler.plugins import plain_text
from profiler.report.files import as_html
from profiler.trace import (
    MANIFEST_NAME,
    ROOT_DEVICE,
    BundleWriter,
    Call,
    CommandBuilder,
    Device,
    Drop,
    DropKind,
    Recording,
    RunInfo,
    Span,
    Submodule,
    Track,
)
from profiler.trace.manifest_fields import Hardware
from tests.runs import why

_CLI = Path(profiler.__file__).parent / "cli"
_START_NS = 1_795_253_400_000_000_000
PAYLOADS = (
    "\x1b[31mred",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b2Jgone",
    "over\rwritten",
    "two\nlines",
    "\N{RIGHT-TO-LEFT OVERRIDE}txt.exe",
    "\N{LEFT-TO-RIGHT ISOLATE}a\N{POP DIRECTIONAL ISOLATE}",
    "zero\N{ZERO WIDTH SPACE}\N{SOFT HYPHEN}\N{ARABIC LETTER MARK}width",
    "=cmd|' /C calc'!A0",
    "+1+cmd",
    "-2+3+cmd",
    "@SUM(A1:A9)",
    "\t=1+1",
    "\N{FULLWIDTH EQUALS SIGN}1+1",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "a | b `c` **d**",
    "@octocat #1 https://evil.example www.evil.example",
)
_SHOWN = "\n\N{NO-BREAK SPACE}"  # and all that is printable


def _info() -> RunInfo:
    first = PAYLOADS[0]
    return RunInfo(
        producer="capture",
        model=" ".join(PAYLOADS),
        pipeline=PAYLOADS[1],
        command_line=PAYLOADS,
        versions=dict(zip(PAYLOADS, PAYLOADS, strict=True)),
        hardware=Hardware(cpu=first, system=PAYLOADS[2]),
        devices={name: Device(hardware=name, provider=name) for name in PAYLOADS},
        submodules={name: Submodule(device=name, model=name) for name in PAYLOADS},
        settings={name: name for name in PAYLOADS},
        recording=Recording(source=first, recorded=PAYLOADS[2], described_as=PAYLOADS[3]),
        drops=tuple(Drop(DropKind.DROPPED_EVENTS, n, 2, n, why(n)) for n in PAYLOADS),
    )


def _write(parent: Path, run_id: str, slower: int) -> Path:
    """A call for each payload, which is its submodule, branch, device, layer and track."""
    with BundleWriter.create(parent, run_id) as bundle:
        for number, name in enumerate(PAYLOADS):
            start = _START_NS + number * 10_000
            call = Call(
                number, name, "denoise", name, number, name, start, 9_000 + slower, True,
                input_shapes={name: name},
            )  # fmt: skip
            builder = CommandBuilder()
            for at in range(2):
                track = Track(name, f"{name} {at}", "compute")
                more: dict[str, Any] = {"kernel": name, "module": name, "shapes": name}
                builder.add(track, name, name, start + 100 + at * 4_000, 3_000 + slower, **more)
            bundle.write_call(call, builder.build())
        end = len(PAYLOADS) * 10_000
        spans = [Span("pipeline", PAYLOADS[0], "", -1, _START_NS, end)]
        spans.append(Span("stage", "denoise", "denoise", -1, _START_NS, end))
        bundle.write_host(spans, CommandBuilder().build(), ROOT_DEVICE)
        return bundle.finish(_info())


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """Two of them, the second slower."""
    folder = tmp_path_factory.mktemp("hostile")
    return _write(folder, "one", 0), _write(folder, "two", 900)


def _steering(text: str) -> list[str]:
    """What a terminal would act on, or what hides something."""
    return sorted({c for c in text if not (c.isprintable() or c in _SHOWN)})


COMMANDS = {
    "analyze": ("{one}", "--no-html"),
    "diff": ("{one}", "{two}", "--fail-over", "1%"),
    "predict": ("{one}",),
    "query": ("{one}", "SELECT * FROM commands_with_calls"),
    "merge": ("{unmerged}",),
    "dump": ("{one}/merged.pb",),
    "import": ("{one}/merged.pb", "--out", "{out}"),
    "share": ("{one}", "--out", "{out}/run.zip"),
    "doctor": (),
    "benchmark-device": ("--device", "\x1b]0;evil\x07", "--out", "{out}/profiles.json"),
    "record": ("--out", "{out}", "--ops", "\x1b[31m", "--", "true"),
    "run": ("--model", "\x1b[31m", "--out", "{out}"),
    "view": ("{one}/\x1b[31m",),
    "export": ("otlp", "{one}", "--out", "{out}/spans.json"),
    "fleet": ("add", "{out}/runs", "{one}"),
    "mcp": ("{out}/\x1b[31m",),
    "graph": ("check", "{out}/\x1b[31m.onnx"),
}
"""What each subcommand is given."""


def test_every_subcommand_is_here() -> None:
    """A new subcommand is added here, too."""
    assert typer.main.get_command(command_line()).commands.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_steers_the_terminal(command, runs, cli, tmp_path):
    """Neither what a subcommand prints nor its errors hold a control character, an escape sequence
    or a mark that turns the direction of writing."""
    if command == "query":
        pytest.importorskip("duckdb", reason="needs the query extra")
    one, two = runs
    unmerged = tmp_path / "unmerged"
    shutil.copytree(one, unmerged)
    (unmerged / "host.pb").unlink()
    places = {"one": one, "two": two, "unmerged": unmerged, "out": tmp_path}
    _, out, err = cli(command, *(word.format(**places) for word in COMMANDS[command]))
    assert out + err
    assert _steering(out + err) == []


def test_a_query_that_fails(runs, cli):
    """Names of a run in an error of DuckDB's, or in what is said of a damaged run, are shown."""
    pytest.importorskip("duckdb", reason="needs the query extra")
    _, out, err = cli("query", runs[0], 'SELECT "\x1b[31m" FROM "\x1b]52;c;\x07"')
    assert "profile-sd3: " in err
    assert _steering(out + err) == []


def test_what_is_said_of_damage(runs, cli, tmp_path):
    """Files that are missing are named on stderr by `query` and `merge`, and do nothing there."""
    pytest.importorskip("duckdb", reason="needs the query extra")
    broken = tmp_path / "broken"
    shutil.copytree(runs[0], broken)
    manifest = json.loads((broken / MANIFEST_NAME).read_text())
    manifest["calls"][0]["file"] = "000_gone.pb"
    (broken / MANIFEST_NAME).write_text(json.dumps(manifest))
    for words in (("query", broken, "SELECT 1"), ("merge", broken)):
        _, out, err = cli(*words)
        assert "000_gone.pb" in err
        assert _steering(out + err) == []


@pytest.mark.parametrize(
    "words", [("analyze", "{one}", "--json", "-"), ("diff", "{one}", "{two}", "--json", "-")]
)
def test_json_on_stdout(words, runs, cli):
    """JSON has what a terminal would act on as escapes, and says the same."""
    places = {"one": runs[0], "two": runs[1]}
    _, out, _ = cli(*(word.format(**places) for word in words))
    assert _steering(out) == []
    assert PAYLOADS[0] in json.dumps(json.loads(out), ensure_ascii=False).replace("\\u001b", "\x1b")


def _cells(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [cell for row in csv.reader(file) for cell in row]


def _is_formula(cell: str) -> bool:
    begins = cell.startswith(
        ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
    )
    return begins and not re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", cell)


def test_csv(runs, cli, tmp_path):
    """No cell of any table is a formula to a spreadsheet, and numbers stay numbers."""
    one, _ = runs
    cli("analyze", one, "--no-html", "--csv", tmp_path)
    files = sorted(tmp_path.glob("*.csv"))
    assert len(files) > 10
    cells = [cell for file in files for cell in _cells(file)]
    assert [cell for cell in cells if _is_formula(cell)] == []
    assert "'=cmd|' /C calc'!A0" in cells
    assert "'@SUM(A1:A9)" in cells
    assert "-1" in cells  # no step: a number


def test_csv_of_an_answer(runs, cli, tmp_path):
    """So with what `query` writes, names of columns included."""
    pytest.importorskip("duckdb", reason="needs the query extra")
    sql = "SELECT layer AS \"=1\", -1.5 AS number, '-2e3' AS text FROM commands LIMIT 40"
    cli("query", runs[0], sql, "--csv", tmp_path / "a.csv")
    cells = _cells(tmp_path / "a.csv")
    assert [cell for cell in cells if _is_formula(cell)] == []
    assert {"'=1", "-1.5", "-2e3"} <= set(cells)


def test_markdown(runs, cli, tmp_path):
    """Markdown, as pull requests and GitHub's summaries show it, holds no markup, link or mention
    of a trace's, and its tables stay tables."""
    one, two = runs
    for sides in ((one, two), (one, two, _third(tmp_path, one))):
        cli("diff", *sides, "--markdown", tmp_path / "a.md")
        text = (tmp_path / "a.md").read_text(encoding="utf-8")
        assert "octocat" in text
        assert _steering(text) == []
        assert not re.search(r"(?<!\\)<(?!!-- -->)", text)
        assert not re.search(r"(?<!\\)\]\(", text)
        assert not re.search(r"@(?!<!-- -->)", text)
        assert not re.search(r"://|www\.", text)
        rows = [line for line in text.splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(widths) <= 3, "one width for each kind of table"


def _third(parent: Path, run: Path) -> Path:
    shutil.copytree(run, parent / "three", dirs_exist_ok=True)
    return parent / "three"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def test_notebooks(runs):
    """What a notebook shows of a run and an analysis has no tag of a trace's and hides nothing."""
    run = profiler.load(runs[0])
    for shown in (run, profiler.analyze(run)):
        page, tags = as_html(shown), _Tags()
        assert _steering(page) == []
        tags.feed(page)
        assert tags.seen <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "code"}


def test_metadata_of_a_model_in_netron():
    """What `graph annotate` writes on nodes for Netron is plain: names of nodes, and kinds."""
    ir = pytest.importorskip("onnx_ir")
    from profiler.graph.annotate import MeasuredCommand, annotate_model
    from tests.graph.models import graph

    model = ir.serde.deserialize_model(graph("float[2] x", "float[2] y", "[n] y = Relu(x)"))
    (node,) = list(model.graph)
    measured = [MeasuredCommand("layer", PAYLOADS[2], 0, 1, 1, 10, role=PAYLOADS[0])]
    measured += [replace(measured[0], op_type="Relu")]
    annotate_model(model, measured, lambda *_: "layer")
    assert _steering("".join(node.metadata_props.values())) == []


def test_names_are_decided_on_in_one_place():
    """No module of the command line prints but through `tell`, the console's reports and tables, or
    functions that write documents."""
    allowed = {"terminal.py", "main.py"}
    found = []
    for path in sorted(_CLI.rglob("*.py")):
        if path.name in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("print", "typer.echo", "typer.secho", "sys.stderr.write"):
                    found.append(f"{path.name}: {called}")
                if called == "sys.stdout.write" and path.name not in ("query.py", "__init__.py"):
                    found.append(f"{path.name}: {called}")
    assert found == []


def test_plain_text():
    """Runs of what cannot be shown are one sign, or what is asked for; what can be shown stays."""
    assert plain_text("a\x1b\x1b]b") == "a�]b"
    assert plain_text("한국어 µ 1\N{NO-BREAK SPACE}ms") == "한국어 µ 1\N{NO-BREAK SPACE}ms"
    assert plain_text("a\nb", lambda c: f"<{ord(c)}>") == "a<10>b"
