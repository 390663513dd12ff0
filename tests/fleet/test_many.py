"""`analyze` and `import` of several runs: each by itself, a bad one is a line and no stop."""

from __future__ import annotations

from pathlib import Path

from profiler.trace import MANIFEST_NAME, read_manifest
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


def test_imports_of_one_name_are_told_apart(tmp_path, capsys):
    """A bundle whose name is taken gets another one, in its manifest as well."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        flux(guided=name == "two").write(tmp_path / name)
    paths = sorted(tmp_path.glob("*/*"))
    assert paths[0].name == paths[1].name
    out = tmp_path / "traces"
    assert run_command("import", *paths, "--all", "--out", out) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert second == f"{first}-2"
    names = [read_manifest(Path(path) / MANIFEST_NAME).run_id for path in (first, second)]
    assert names == [Path(first).name, Path(second).name]
    assert sorted(map(str, out.iterdir())) == [first, second]


def test_what_a_killed_import_left_is_no_run(tmp_path, capsys):
    """The folder in which it wrote is not looked into."""
    out = tmp_path / "traces"
    write_bundles(out, 1)
    write_bundles(out / ".0123.part", 1)
    assert run_command("analyze", out, "--all", "--no-html") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
