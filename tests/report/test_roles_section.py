"""Roles and blocks in the report."""

from __future__ import annotations

from profiler.analysis.analyze import analyze
from tests.report.rendered import part_lines, printed
from tests.runs import Command, make_call, make_info, make_run


def _text(classes):
    call = make_call(0, "transformer", 0, 3_000_000, device="cuda:0")
    made = [("blocks.0.ff", 2_000_000), ("blocks.0.norm1", 1_000_000)]
    commands = [
        Command(0, "cuda:0", "s", "compute", layer, at, duration, "aten::gelu")
        for at, (layer, duration) in enumerate(made)
    ]
    known = {"transformer": {"modules": classes}}
    run = make_run([call], commands, info=make_info("capture", submodules=known))
    return printed(analyze(run), 120)


def test_roles_and_blocks():
    """mlp takes 2 of 3 ms, the norm of the block the third."""
    text = _text({"blocks.0.ff": "FeedForward", "blocks.0.norm1": "RMSNorm"})
    roles = part_lines(text, "Device time by role")
    assert roles[1].startswith("transformer mlp 1 2.00 66.7")
    assert roles[2].startswith("transformer norm 1 1.00 33.3")
    blocks = part_lines(text, "Norms and modulation in blocks")
    assert blocks[1].startswith("blocks.0 transformer 2 3.00 1.00 33.3")
    assert "no classes" not in text


def test_report_says_where_classes_are_missing():
    """Roles are then by names, op types and shapes."""
    assert "The trace has no classes of modules" in _text({})


def test_calls_alone_tell_nothing_of_roles():
    """No part of operators and roles is there."""
    text = printed(analyze(make_run([make_call(0, "vae", 0, 10)])))
    assert "Device time by role" not in text
    assert "Operators, roles" not in text
