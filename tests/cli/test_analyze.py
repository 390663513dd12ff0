"""`profile-sd3 analyze`: what it reads, prints, writes and refuses."""

import base64
import gzip
import json
import os
import re
import zlib
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import profiler
from profiler.analysis import tables
from profiler.cli.commands.analyze import AnalyzeOptions, analyze
from profiler.cli.main import command_line
from profiler.errors import InputError, OutputError
from profiler.report import section_kinds
from profiler.run import write_parquet
from profiler.tools.sources import load
from profiler.trace import Drop, DropKind, merge_bundle, schema
from tests.runs import why, write_empty_bundle, write_tiny_bundle


@pytest.fixture
def bundle(tmp_path):
    """The tiny run as a bundle below a folder of bundles."""
    return write_tiny_bundle(tmp_path / "traces")


def _foreign(path):
    """A Perfetto trace of another producer: one slice, no call of ours."""
    trace = schema.Trace()
    for kind in (schema.SLICE_BEGIN, schema.SLICE_END):
        packet = trace.packet.add(trusted_packet_sequence_id=1, timestamp=10 * kind)
        packet.track_event.type = kind
        packet.track_event.track_uuid = 7
        packet.track_event.name = "theirs"
    path.write_bytes(trace.SerializeToString())
    return path


def test_prints_the_report_and_writes_the_page(bundle, capsys):
    """The page goes into the bundle, and its place is named."""
    analyze(AnalyzeOptions(path=bundle))
    out = capsys.readouterr().out
    assert out.startswith("1.00 µs for 2 steps: 2 NPUs compute 7.0 % to 48 %")
    assert out.endswith(f"\nwrote {bundle / 'report.html'}\n")
    assert "<html" in (bundle / "report.html").read_text(encoding="utf-8")


def test_page_of_a_bundle_is_ours_to_rewrite(bundle, capsys):
    """Analyzing twice is no error."""
    analyze(AnalyzeOptions(path=bundle))
    (bundle / "report.html").write_text("old")
    analyze(AnalyzeOptions(path=bundle))
    assert (bundle / "report.html").read_text(encoding="utf-8") != "old"


def test_no_html(bundle, capsys):
    """No page is written, and nothing said to be; data sets get their summary."""
    before = [*bundle.iterdir()]
    analyze(AnalyzeOptions(path=bundle, no_html=True))
    assert sorted(bundle.iterdir()) == sorted([*before, bundle / "summary.json"])
    assert "wrote" not in capsys.readouterr().out


def test_newest_of_several_bundles(bundle, capsys):
    """The others are named below the answer, with paths that can be copied."""
    older = write_tiny_bundle(bundle.parent, "20260101-000000-older")
    os.utime(older / "manifest.json", (1, 1))
    analyze(AnalyzeOptions(path=bundle.parent, no_html=True))
    note = f"the newest of 2 runs in {bundle.parent}; others: {older.name}"
    assert f"\n{note}\n" in capsys.readouterr().out


def test_many_other_bundles_are_counted(bundle, capsys):
    """Four names, then how many more."""
    for number in range(6):
        write_tiny_bundle(bundle.parent, f"run-{number}")
    analyze(AnalyzeOptions(path=bundle.parent, no_html=True))
    assert " and 2 more\n" in capsys.readouterr().out


def test_killed_run_beside_is_named(bundle, capsys):
    """A newer run without a manifest is not passed over in silence."""
    killed = write_tiny_bundle(bundle.parent, "killed")
    (killed / "manifest.json").unlink()
    analyze(AnalyzeOptions(path=bundle.parent, no_html=True))
    assert f"{killed} has no manifest and was left out" in capsys.readouterr().out


def test_run_that_has_not_ended_beside_is_named(bundle, capsys):
    """A run with a journal, killed or still going on, is left out and named with its
    recommendation."""
    killed = write_tiny_bundle(bundle.parent, "killed")
    (killed / ".calls").touch()
    analyze(AnalyzeOptions(path=bundle.parent, no_html=True))
    out = capsys.readouterr().out
    assert f"{killed} has not ended and was left out: `profile-sd3 merge {killed}`" in out


def test_single_trace(bundle, capsys, tmp_path, monkeypatch):
    """The merged trace alone: the page has its name and is in the current folder."""
    monkeypatch.chdir(tmp_path)
    analyze(AnalyzeOptions(path=bundle / "merged.pb"))
    assert capsys.readouterr().out.startswith("1.00 µs for 2 steps")
    assert (tmp_path / "merged.report.html").is_file()


def test_single_call_has_no_accounting(bundle, capsys):
    """One call file holds no spans."""
    analyze(AnalyzeOptions(path=bundle / "003_vae.decode.pb", no_html=True, full=True))
    out = capsys.readouterr().out
    assert "No accounting of the whole time: the trace holds no pipeline" in out


def test_page_of_someone_else_is_not_overwritten(bundle, tmp_path, monkeypatch):
    """merged.report.html exists and is not ours."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "merged.report.html").write_text("<p>mine</p>")
    with pytest.raises(OutputError, match="is no page of ours: give --html FILE"):
        analyze(AnalyzeOptions(path=bundle / "merged.pb"))
    assert (tmp_path / "merged.report.html").read_text() == "<p>mine</p>"


def test_html_at_a_place_of_choice(bundle, tmp_path, capsys):
    """An explicit file is written over."""
    page = tmp_path / "page.html"
    page.write_text("old")
    analyze(AnalyzeOptions(path=bundle, html=page))
    assert "<html" in page.read_text(encoding="utf-8")
    assert not (bundle / "report.html").exists()


def test_page_that_cannot_be_written(bundle, tmp_path, capsys):
    """A place that was asked for is refused before any work; where the page cannot be written
    beside the trace, the report is out and the sentence has both ways on."""
    with pytest.raises(OutputError, match="missing is no folder: make it, or give another"):
        analyze(AnalyzeOptions(path=bundle, html=tmp_path / "missing" / "page.html"))
    assert capsys.readouterr().out == ""
    (bundle / "report.html").mkdir()
    with pytest.raises(OutputError, match="give another place with --html FILE, or --no-html"):
        analyze(AnalyzeOptions(path=bundle))
    assert "End to end" in capsys.readouterr().out


def test_json_on_stdout_is_all_there(bundle, capsys):
    """--json - prints the document and nothing else."""
    analyze(AnalyzeOptions(path=bundle, json_file=Path("-"), no_html=True))
    found = json.loads(capsys.readouterr().out)
    assert found["accounting"]["end_to_end_ns"] == 1000


def test_json_csv_and_parquet_files(bundle, tmp_path, capsys):
    """Each is written beside the printed report, and named."""
    paths = [tmp_path / name for name in ("report.json", "csv", "parquet")]
    paths[0].write_text("old")
    analyze(
        AnalyzeOptions(
            path=bundle, json_file=paths[0], csv_dir=paths[1], parquet_dir=paths[2], no_html=True
        )
    )
    assert json.loads(paths[0].read_text(encoding="utf-8"))["run"]["calls"] == 4
    assert {path.stem for path in paths[1].iterdir()} == {table.name for table in tables()}
    assert len(profiler.load(paths[2]).commands) == 12
    out = capsys.readouterr().out
    assert [f"wrote {path}" in out for path in paths] == [True] * 3


def test_parquet_run_is_analyzed_too(bundle, tmp_path, capsys):
    """What --parquet wrote is an input, its page goes into its folder."""
    analyze(AnalyzeOptions(path=bundle, parquet_dir=tmp_path / "run", no_html=True))
    capsys.readouterr()
    analyze(AnalyzeOptions(path=tmp_path / "run"))
    assert capsys.readouterr().out.startswith("1.00 µs for 2 steps")
    assert (tmp_path / "run" / "report.html").is_file()


def test_filters(bundle, capsys):
    """Each option reaches the tables."""
    names = {"stage": ["denoise"], "submodule": ["transformer"], "device": ["rbln:0"]}
    analyze(AnalyzeOptions(path=bundle, step=["last"], json_file=Path("-"), no_html=True, **names))
    found = json.loads(capsys.readouterr().out)
    assert [call["call"] for call in found["calls"]] == [2]
    assert found["run"]["selection"] == {**names, "step": ["last"]}


def test_top(bundle, capsys):
    """--top 1 prints one operator."""
    analyze(AnalyzeOptions(path=bundle, top=1, no_html=True, full=True))
    out = capsys.readouterr().out
    assert "1 of 4 rows" in out
    assert "blocks.0.mlp" not in out


def test_the_page_shows_as_many_operators_as_the_terminal(bundle, capsys):
    """--top 1 holds for the page's table of operators, too: one report is made for both."""
    shown = []
    for options in ({"top": 1}, {}):
        analyze(AnalyzeOptions(path=bundle, **options))
        page = (bundle / "report.html").read_text(encoding="utf-8")
        (packed,) = re.findall(r'id="page-rest">(.*?)</script>', page)
        data = json.loads(zlib.decompress(base64.b64decode(packed)))
        shown.append(data["tables_shown"]["operators"]["shown"])
    assert shown[0] == 1 < shown[1]


@pytest.mark.parametrize("option", ["json_file", "html"])
@pytest.mark.parametrize("name", ["merged.pb", "manifest.json"])
def test_files_of_the_trace_are_not_written_over(bundle, option, name, capsys):
    """Refused before anything is printed."""
    before = (bundle / name).read_bytes()
    with pytest.raises(OutputError, match="is part of a trace"):
        analyze(AnalyzeOptions(path=bundle, **{option: bundle / name}))
    assert (bundle / name).read_bytes() == before
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["run.json", "commands.parquet", "args.parquet"])
def test_files_of_a_parquet_run_are_not_written_over(bundle, tmp_path, name):
    """In the folder that `write_parquet` wrote they are the run."""
    folder = tmp_path / "parquet"
    write_parquet(profiler.load(bundle), folder)
    before = (folder / name).read_bytes()
    with pytest.raises(OutputError, match=f"{name} is part of a trace: give another file"):
        analyze(AnalyzeOptions(path=folder, json_file=folder / name))
    assert (folder / name).read_bytes() == before


def test_elsewhere_run_json_is_a_name_like_any_other(bundle, tmp_path, monkeypatch):
    """Beside a Parquet run's folder, in a folder of reports and without a folder."""
    write_parquet(profiler.load(bundle), tmp_path / "parquet")
    monkeypatch.chdir(tmp_path)
    for path in (Path("run.json"), tmp_path / "traces" / "run.json"):
        analyze(AnalyzeOptions(path=bundle, json_file=path, no_html=True))
        assert json.loads(path.read_text())["run"]["calls"] == 4
    report = tmp_path / "parquet" / "report.json"
    analyze(AnalyzeOptions(path=tmp_path / "parquet", json_file=report, no_html=True))
    assert report.is_file()


def test_cut_file_is_reported_and_then_an_error(bundle, capsys):
    """The report with the drop, then file, offset and recommendation."""
    path = bundle / "001_transformer.step000.pb"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(
        InputError, match=r"step000.pb is not whole \(the file is cut or damaged at byte \d"
    ):
        analyze(AnalyzeOptions(path=bundle))
    out = capsys.readouterr().out
    assert "truncated file in 001_transformer.step000.pb" in out
    assert "End to end" in out
    assert (bundle / "report.html").is_file()


def test_cut_single_trace_names_itself(bundle, capsys):
    """The path as it was given."""
    path = bundle / "merged.pb"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError) as caught:
        analyze(AnalyzeOptions(path=path, no_html=True))
    assert str(caught.value).startswith(f"{path} is not whole (the file is cut or damaged at byte ")


def test_cut_merged_trace_is_told(bundle, capsys):
    """What stands in whole call files is not missing: the report is whole, and says that the copy
    is not, with how to make it anew."""
    path = bundle / "merged.pb"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-9])
    analyze(AnalyzeOptions(path=bundle, no_html=True, full=True))
    out = " ".join(capsys.readouterr().out.split())
    assert f"Damaged copy in merged.pb: 9 bytes. The file has {size - 9:,} of {size:,} bytes" in out
    assert "`profile-sd3 merge` rebuilds it" in out
    merge_bundle(bundle)
    assert not load(bundle).drops


@pytest.mark.parametrize("beside", [True, False])
def test_call_file_that_is_cut_before_its_call_ends(bundle, tmp_path, beside):
    """Alone or beside its manifest: it is cut, which is what is said, not a trace of others."""
    whole = bundle / "001_transformer.step000.pb"
    path = whole if beside else tmp_path / "cut.pb"
    path.write_bytes(whole.read_bytes()[:200])
    with pytest.raises(InputError) as caught:
        analyze(AnalyzeOptions(path=path, no_html=True))
    assert str(caught.value).startswith(f"{path} is not whole (the file is cut or damaged at byte ")


def test_the_newest_run_with_calls(bundle, capsys):
    """One that was refused before its first call is newer: it is left out, and named."""
    empty = write_empty_bundle(bundle.parent, "empty")
    analyze(AnalyzeOptions(path=bundle.parent, no_html=True))
    assert f"{empty} holds no call and was left out" in " ".join(capsys.readouterr().out.split())


def test_missing_file_is_reported_and_then_an_error(bundle, capsys):
    """Its call stays, as the manifest has it; further drops are counted."""
    (bundle / "001_transformer.step000.pb").unlink()
    (bundle / "003_vae.decode.pb").unlink()
    with pytest.raises(InputError, match=r"step000.pb is missing, .* \(and 1 more\)$"):
        analyze(AnalyzeOptions(path=bundle, no_html=True, full=True))
    assert capsys.readouterr().out.count("\nMissing file in ") == 2


def test_drops_without_damage_are_no_error(tmp_path, capsys):
    """A run that says what it did not trace is a whole run."""
    drop = Drop(DropKind.UNTRACED_CALL, "run", 1, "calls", why("the call did not return"))
    analyze(
        AnalyzeOptions(
            path=write_tiny_bundle(tmp_path, drops=[asdict(drop)]), no_html=True, full=True
        )
    )
    assert "Untraced call in run: 1 call. the call did not return." in capsys.readouterr().out


def test_slices_of_a_foreign_trace_are_host_work(tmp_path, capsys):
    """A line says so, and how to name devices: no name is guessed to be one's."""
    path = _foreign(tmp_path / "theirs.pb")
    analyze(AnalyzeOptions(path=path, no_html=True))
    out = capsys.readouterr().out
    assert out.startswith("10 ns for 1 call\n")
    assert (
        "\nAll slices count as host work. If tracks such as theirs are devices, give\n"
        "--import device=REGEX; for RBLN's profiler, use profile-sd3 import.\n"
    ) in out


def test_trace_of_another_profiler_without_a_call(tmp_path):
    """A Chrome JSON trace, packed: its importer says what it lacks."""
    path = tmp_path / "some_trace.json.gz"
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}'))
    with pytest.raises(InputError, match=r"some_trace\.json\.gz"):
        analyze(AnalyzeOptions(path=path))


def test_host_file_of_a_bundle_has_no_call(bundle):
    """The bundle is what was meant."""
    with pytest.raises(InputError, match=f"give the whole bundle {bundle}"):
        analyze(AnalyzeOptions(path=bundle / "host.pb"))


def test_path_that_is_not_there(tmp_path):
    """The sentence comes from the loader."""
    with pytest.raises(InputError, match="does not exist"):
        analyze(AnalyzeOptions(path=tmp_path / "nothing"))


def test_csv_is_read_as_numbers(bundle, tmp_path, capsys):
    """Times in the files are whole nanoseconds."""
    analyze(AnalyzeOptions(path=bundle, csv_dir=tmp_path / "csv", no_html=True))
    frame = pl.read_csv(tmp_path / "csv" / "operators.csv")
    assert frame["total_ns"].dtype == pl.Int64


def test_options_on_the_command_line(cli, bundle, tmp_path):
    """Every option as it is typed; filters repeat."""
    typed = ["analyze", bundle, "--top", 3, "--stage", "denoise", "--stage", "decode"]
    typed += ["--submodule", "transformer", "--device", "rbln:0", "--step", 0, "--step", "last"]
    typed += ["--csv", tmp_path / "csv", "--parquet", tmp_path / "run", "--json", "-"]
    code, text, error = cli(*typed, "--html", tmp_path / "page.html")
    assert code == 0, error
    assert [call["call"] for call in json.loads(text)["calls"]] == [1, 2]
    assert {path.name for path in tmp_path.iterdir()} == {"traces", "csv", "run", "page.html"}


@pytest.fixture
def base(tmp_path):
    """Another bundle of the same run."""
    made = write_tiny_bundle(tmp_path / "before")
    return made.rename(tmp_path / "before" / "base")


def test_against_a_baseline(bundle, base, capsys):
    """Terminal and page have the sentence and the section."""
    analyze(AnalyzeOptions(path=bundle, against=[base], full=True))
    out = " ".join(capsys.readouterr().out.split())
    assert "end to end 0.0 %, measured once (1.00 µs → 1.00 µs)" in out
    assert "Against the baseline ──" in out
    page = (bundle / "report.html").read_text(encoding="utf-8")
    assert '<section id="comparison"' in page


def test_against_a_folder_takes_all_its_other_runs(bundle, base, capsys):
    """Every bundle in it is the baseline, but the run itself."""
    base.rename(bundle.parent / "base")
    (bundle.parent / "base").joinpath("report.html").unlink(missing_ok=True)
    analyze(AnalyzeOptions(path=bundle, against=[bundle.parent], no_html=True))
    assert "\nAgainst " in capsys.readouterr().out


def test_against_itself_is_no_comparison(bundle):
    """A run is no baseline of itself."""
    with pytest.raises(InputError, match=r"--against names only .* itself: give another run"):
        analyze(AnalyzeOptions(path=bundle, against=[bundle]))


def test_against_what_is_not_there(bundle, tmp_path):
    """Refused before anything is written."""
    with pytest.raises(InputError, match="does not exist"):
        analyze(AnalyzeOptions(path=bundle, against=[tmp_path / "nowhere"]))
    assert not (bundle / "report.html").exists()


def test_a_damaged_run_is_not_compared(bundle, base, capsys):
    """Its report is written, without a comparison, and the error names the file."""
    path = next(bundle.glob("001_*.pb"))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="is not whole"):
        analyze(AnalyzeOptions(path=bundle, against=[base]))
    out = capsys.readouterr().out
    assert "\nnot compared: files of this run are damaged" in out
    assert '<section id="comparison"' not in (bundle / "report.html").read_text(encoding="utf-8")


def test_filters_take_commas(cli, tmp_path):
    """Names with commas, and steps with commas and ranges, are those of repeated options."""
    bundle = write_tiny_bundle(tmp_path)
    shown = ("--no-html", "--json", "-")
    _, once, _ = cli("analyze", bundle, "--submodule", "vae,transformer", "--step", "0-0,1", *shown)
    repeated = ("--submodule", "vae", "--submodule", "transformer", "--step", "0-0", "--step", "1")
    _, more, _ = cli("analyze", bundle, *repeated, *shown)
    assert json.loads(once)["run"]["selected_calls"] == 2
    assert once == more
    selection = {"submodule": "vae,transformer", "step": "0-0,1"}
    found = profiler.analyze(profiler.load(bundle), **selection)
    assert found.run.selection.submodule == ("vae", "transformer")
    assert found.run.selected_calls == 2


def test_full_prints_all_sections(bundle, capsys):
    """The 40 lines have no section; all that have something to show stand below `--full`."""
    analyze(AnalyzeOptions(path=bundle, no_html=True))
    assert " ──" not in capsys.readouterr().out
    analyze(AnalyzeOptions(path=bundle, no_html=True, full=True))
    out = capsys.readouterr().out
    for title in ("Stages and steps ─", "Findings ─", "Idle time ─"):
        assert f"\n{title}" in out


def test_sections_are_printed_alone(bundle, capsys):
    """In the report's order, with commas or one by one; an empty one says so; no headline."""
    analyze(AnalyzeOptions(path=bundle, no_html=True, section=["idle,time", "ranks"]))
    out = capsys.readouterr().out
    assert out.startswith("Stages and steps ─")
    assert out.index("\nIdle time ─") > 0
    assert out.endswith("ranks: this run has nothing to show there\n")
    assert "Findings" not in out


def test_the_summary_is_a_section(bundle, capsys):
    """What stands above all sections: headline, key figures, accounting."""
    analyze(AnalyzeOptions(path=bundle, no_html=True, section=["summary"]))
    out = capsys.readouterr().out
    assert out.startswith("1.00 µs for 2 steps")
    assert "End to end 1.00 µs = calls" in " ".join(out.split())
    assert " ──" not in out


def test_a_section_that_is_none(bundle, capsys):
    """One sentence, before anything is read or written."""
    with pytest.raises(
        InputError, match="there is no section 'idel': there is summary, ladder, findings, "
    ):
        analyze(AnalyzeOptions(path=bundle, section=["time,idel"]))
    with pytest.raises(InputError, match="--full and --section contradict each other"):
        analyze(AnalyzeOptions(path=bundle, section=["time"], full=True))
    assert capsys.readouterr().out == ""
    assert not (bundle / "report.html").exists()


def test_sections_are_listed():
    """Key and heading of each; no run is needed."""
    done = CliRunner().invoke(command_line("analyze"), ["analyze", "--list-sections", "nowhere"])
    assert (done.exit_code, done.output.splitlines()[1]) == (0, "ladder      What to do first")
    assert len(done.output.splitlines()) == len(section_kinds())


def test_top_reaches_all_tables(bundle, capsys):
    """Two rows of calls, submodules and idle time; the stages, which add up, are all there."""
    analyze(AnalyzeOptions(path=bundle, no_html=True, full=True, top=2))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines.count("2 of 4 rows") >= 2
    assert "2 of 3 rows" in lines
    assert any(line.startswith("end to end 1.00") for line in lines)
