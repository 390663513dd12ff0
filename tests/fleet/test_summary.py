"""`summary.json`: what it says, who writes it, and when it counts."""

from __future__ import annotations

import json
import shutil
import stat

import pytest

from profiler.analysis.analyze import analyze
from profiler.cli.commands.record import summarize_recorded
from profiler.tools.metrics import (
    SUMMARY_NAME,
    bundle_digest,
    key_of,
    key_of_run,
    median_interval,
    read_summary,
    summarize_analysis,
    summarized,
    summary_of,
    write_summary,
)
from profiler.tools.sources import Kind, Source, load_source
from tests.command_line import run_command
from tests.fleet.bundles import write_bundle


@pytest.fixture
def bundle(tmp_path):
    return write_bundle(tmp_path / "traces", 0)


def _source(bundle):
    return Source(bundle, Kind.BUNDLE)


def _values(summary, metric, **of):
    found = []
    for row in summary.metrics:
        named = {n: getattr(row, n) for n in ("stage", "submodule", "step", "role", "device")}
        if (
            row.metric == metric
            and row.shape is None
            and {k: v for k, v in named.items() if v is not None} == of
        ):
            found.append(row.value)
    return found


def test_the_numbers_of_the_tiny_run(bundle):
    """1000 ns end to end: stages last to the end of their last tile, at 100, 760 and 1000."""
    found = summarized(_source(bundle))
    assert _values(found, "elapsed") == [1000]
    assert _values(found, "elapsed", stage="encode") == [100]
    assert _values(found, "elapsed", stage="denoise") == [660]
    assert _values(found, "step", stage="denoise", step=0) == _values(
        found, "first_step", stage="denoise"
    )
    assert _values(found, "call", stage="decode", submodule="vae") == [80]
    assert _values(found, "calls", stage="denoise", submodule="transformer") == [2]
    run = found.run
    assert (run["pipeline"], run["model"]) == ("StableDiffusion3Pipeline", "tiny-sd3")
    assert run["time_ns"] == 1_800_000_000_000_000_000
    assert run["software"] == "onnxruntime 1.20.0"
    assert run["cache"] is None  # nobody recorded it
    assert run["quality"] == ""


def test_the_analysis_at_hand_says_the_same(bundle):
    """A summary of the whole analysis is that of the tables which it needs."""
    source = _source(bundle)
    assert summary_of(
        analyze(load_source(source)), source, content=bundle_digest(bundle)
    ) == summarized(source)


def test_it_counts_while_the_bundle_is_what_it_was(bundle):
    """A changed call file, a changed manifest, another version, a damaged or foreign document: it
    does not count and is made anew."""
    source = _source(bundle)
    assert write_summary(bundle, summarized(source))
    assert read_summary(bundle) == summarized(source)
    path = bundle / SUMMARY_NAME
    text = path.read_text()
    document = json.loads(text)
    for wrong in (
        "{", "[]", text.replace('"run_id"', '"runid"'), json.dumps(document | {"more": 1}),
        json.dumps(document | {"schema_version": 99}),
        json.dumps(document | {"metrics": [["x"]]}),
        json.dumps(document | {"run": document["run"] | {"steps": "many"}}),
    ):  # fmt: skip
        path.write_text(wrong)
        assert read_summary(bundle) is None
    path.write_text(text)
    manifest = bundle / "manifest.json"
    manifest.write_text(manifest.read_text().replace("tiny-sd3", "tiny-sd4"))
    assert read_summary(bundle) is None
    assert write_summary(bundle, summarized(source))
    with next(bundle.glob("000_*.pb")).open("r+b") as file:
        file.write(b"\n\x00")
    assert read_summary(bundle) is None


def test_analyze_writes_it(bundle, capsys):
    """`analyze` leaves a current one, for its owner alone; a filtered analysis leaves none."""
    assert run_command("analyze", bundle, "--no-html", "--step", "0") == 0
    assert not (bundle / SUMMARY_NAME).exists()
    assert run_command("analyze", bundle, "--no-html") == 0
    assert read_summary(bundle) == summarized(_source(bundle))
    mode = stat.S_IMODE((bundle / SUMMARY_NAME).stat().st_mode)
    assert mode == stat.S_IMODE((bundle / "manifest.json").stat().st_mode)
    capsys.readouterr()


def test_the_commit_stays(bundle, tmp_path, monkeypatch):
    """What was recorded with its commit keeps it when the summary is made anew."""
    monkeypatch.setenv("PROFILE_SD3_COMMIT", "abc123")
    assert summarize_recorded(bundle, tmp_path)
    monkeypatch.delenv("PROFILE_SD3_COMMIT")
    document = json.loads((bundle / SUMMARY_NAME).read_text())
    assert document["run"]["commit"] == "abc123"
    (bundle / SUMMARY_NAME).write_text(json.dumps(document | {"schema_version": 0}))
    source = _source(bundle)
    assert summarize_analysis(analyze(load_source(source)), source)
    assert read_summary(bundle).run["commit"] == "abc123"


def test_the_commit_of_a_repository(bundle, tmp_path, monkeypatch):
    """Without variables it is read from the repository's files: a branch, packed or not."""
    for name in ("PROFILE_SD3_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    git = tmp_path / "repository" / ".git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{'a' * 40} refs/heads/main\n")
    summarize_recorded(bundle, git.parent)
    assert json.loads((bundle / SUMMARY_NAME).read_text())["run"]["commit"] == "a" * 40


def test_a_copy_has_the_same_key(bundle, tmp_path):
    """Where a bundle lies and what its merged trace looks like says nothing of its content."""
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    (copy / "merged.pb").unlink()
    assert key_of(_source(copy)) == key_of(_source(bundle))
    merged = load_source(Source(bundle / "merged.pb", Kind.TRACE))
    assert key_of_run(merged) == key_of(_source(bundle))


@pytest.mark.parametrize(
    ("count", "low", "high"), [(5, None, None), (6, 0, 5), (10, 1, 8), (20, 5, 14), (100, 39, 60)]
)
def test_intervals_of_medians(count, low, high):
    """The order statistics of tables of the sign test: 10 values, the second and the ninth."""
    assert median_interval(range(count))[1:] == (low, high)
