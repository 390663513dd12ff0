"""The tables of roles in the terminal."""

import io

from rich.console import Console

from profiler.analysis.analyze import analyze
from profiler.report.role_text import role_sections
from tests.runs import Command, make_call, make_info, make_run


def _text(run, width=120):
    console = Console(width=width, record=True, file=io.StringIO())
    for title, parts in role_sections(analyze(run), width):
        console.print(title)
        for part in parts:
            console.print(part)
    return console.export_text()


def _run(classes):
    call = make_call(0, "transformer", 0, 3_000_000, device="cuda:0")
    made = [("blocks.0.ff", 2_000_000), ("blocks.0.norm1", 1_000_000)]
    commands = [
        Command(0, "cuda:0", "s", "compute", layer, at, duration, "aten::gelu")
        for at, (layer, duration) in enumerate(made)
    ]
    known = {"transformer": {"modules": classes}}
    return make_run([call], commands, info=make_info("capture", submodules=known))


def test_roles_and_blocks():
    """mlp takes 2 of 3 ms; the blocks of one name are one row."""
    text = _text(_run({"blocks.0.ff": "FeedForward", "blocks.0.norm1": "RMSNorm"}))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "What the device time of each submodule is for" in lines
    assert any(line.startswith("transformer mlp 1 2.00 66.7") for line in lines)
    assert any(line.startswith("transformer norm 1 1.00 33.3") for line in lines)
    assert any(line.startswith("transformer blocks.* 1 3.00") for line in lines)
    assert "no classes" not in text


def test_report_says_where_classes_are_missing():
    """Roles are then by names, op types and shapes."""
    assert "the trace has no classes of modules" in _text(_run({}))


def test_run_without_operators_has_no_section():
    """Calls alone tell nothing of roles."""
    assert _text(make_run([make_call(0, "vae", 0, 10)])) == ""
