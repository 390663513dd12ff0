"""`profile-sd3 share` prints what it took out, and refuses what it cannot share."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.command_line import refused, run_command
from tests.trace.samples import small_bundle


def test_what_was_taken_out_is_printed(tmp_path, capsys):
    """Each text with its stand-in, files that were left out, and where the rest is."""
    bundle = small_bundle(tmp_path)
    (bundle / "report.html").write_text("page")
    out = tmp_path / "run.zip"
    assert run_command("share", tmp_path, "--out", out, "--remove", "small") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("replaced: small by text-")
    assert "left out: report.html" in lines
    assert lines[-1].startswith(f"wrote {out}: ")
    with zipfile.ZipFile(out) as archive:
        assert all("small" not in name for name in archive.namelist())


def test_a_run_of_onnx_models_is_shared(tmp_path, capsys):
    """Names of models keep their .onnx, on which advice depends: the tables stay equal."""
    sample = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"
    assert run_command("share", sample, "--out", tmp_path / "run.zip") == 0
    out = capsys.readouterr().out
    assert "replaced: transformer/model.onnx by path-" in out
    assert "the tables are equal" in out


def test_other_outputs_and_other_runs_are_refused(tmp_path, capsys):
    """The output is a ZIP file, what is shared a bundle."""
    bundle = small_bundle(tmp_path)

    def sentence(*arguments: object) -> str:
        code = run_command("share", *arguments)
        out, err = capsys.readouterr()
        return refused((code, out, err))

    assert "does not end in .zip" in sentence(bundle, "--out", tmp_path / "run.tar")
    assert "is no bundle" in sentence(bundle / "merged.pb", "--out", tmp_path / "run.zip")
