"""`analyze` and `import` of several runs: each by itself, a bad one is a line and no stop."""

from __future__ import annotations

from tests.command_line import run_command
from tests.fleet.bundles import write_bundles
from tests.importers.kineto.traces import flux


def test_analyze_all(tmp_path, capsys):
    """Every bundle of a folder gets its page and its summary; a damaged one is said."""
    bundles = write_bundles(tmp_path / "traces", 3)
    (bundles[1] / "manifest.json").write_text("{")
    assert run_command("analyze", tmp_path / "traces", "--all") == 2
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in sorted(out.splitlines())] == [
        str(bundles[0]),
        str(bundles[2]),
    ]
    assert "1 of 3 could not be read" in err
    for bundle in (bundles[0], bundles[2]):
        assert (bundle / "report.html").is_file()
        assert (bundle / "summary.json").is_file()


def test_import_all(tmp_path, capsys):
    """Each path becomes a bundle of its own; a text is said."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    paths = [flux().write(tmp_path / "one"), flux(guided=True).write(tmp_path / "two")]
    (tmp_path / "text.txt").write_text("hello")
    out = tmp_path / "traces"
    assert run_command("import", *paths, tmp_path / "text.txt", "--all", "--out", out) == 2
    text, err = capsys.readouterr()
    assert len(text.splitlines()) == len([*out.iterdir()]) == 2
    assert "1 of 3 could not be read" in err
