"""`fleet history`, `fleet gate` and `fleet accept` on data sets of runs whose truth is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.fleet import Dataset, LocalStorage, commit_batch
from profiler.fleet.compare import Outcome, gate
from profiler.fleet.history import accept, accepted_changes
from profiler.fleet.storage import open_storage
from tests.command_line import refused, run_command
from tests.fleet.histories import drift, flat, step, two_modes
from tests.fleet.simulated import addition, filled, key

METRIC = "denoise.step"


def stored(folder, values, **columns):
    """A data set with a run a value of `denoise.step`."""
    runs = [addition(n, {"step": float(value)}, **columns) for n, value in enumerate(values)]
    filled(LocalStorage(folder), runs)
    return folder


@pytest.fixture(scope="module")
def regressed(tmp_path_factory):
    """40 runs at 1 % noise, 8 % slower from run 30 on."""
    values = step(np.random.default_rng(1), 40, 0.01, 30, 0.08)
    return stored(tmp_path_factory.mktemp("fleet") / "regressed", values)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """40 runs at 1 % noise."""
    values = flat(np.random.default_rng(2), 40, 0.01)
    return stored(tmp_path_factory.mktemp("fleet") / "quiet", values)


def test_history_names_the_runs_around_a_change(regressed, capsys):
    """Table of the change, last good and first bad run with commits, sparkline, page and JSON."""
    page, document = regressed.parent / "page.html", regressed.parent / "history.json"
    options = ("--metric", METRIC, "--html", page, "--json", document)
    assert run_command("fleet", "history", regressed, *options) == 0
    out = " ".join(capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ").split())
    assert f"{METRIC}@{key(30)[:8]}" in out
    assert "last good run run29" in out
    assert "first bad run run30" in out
    assert f"commit {29:012x}"[:12] in out
    assert "the bundle of run29 is not at /bundles/run29" in out
    (found,) = json.loads(document.read_text("utf-8"))["histories"]
    (change,) = found["changes"]
    assert (change["last_good"], change["first_bad"]) == ("run29", "run30")
    assert change["by"] == pytest.approx(0.08, abs=0.01)
    assert change["alarm"]
    text = page.read_text("utf-8")
    assert text.count("<circle") == 40
    assert 'class="alarm"' in text


def test_history_says_what_it_leaves_out(tmp_path, capsys):
    """The newest run of good quality tells what is comparable: three runs of bad quality, the
    newest among them, are counted and left out, and stand in it with --bad-quality; of bad runs
    alone there is no history. The median of ten runs and the newest value are two figures."""
    data, storage = stored(tmp_path / "data", [1e8] * 9 + [1.5e8]), LocalStorage(tmp_path / "data")
    for number in (20, 21, 22):
        commit_batch(storage, [addition(number, {"step": 2e8}, quality="drops")])
    ask = ("history", data, "--metric", METRIC)
    assert run_command("fleet", *ask) == 0
    out, err = capsys.readouterr()
    assert f"{METRIC}: 10 runs, median 100 ms, newest 150 ms" in _plain(out)
    assert err == "left out: 3 runs of bad quality: --bad-quality includes them\n"
    assert run_command("fleet", *ask, "--bad-quality") == 0
    out, err = capsys.readouterr()
    assert (f"{METRIC}: 13 runs" in out, err) == (True, "")
    assert run_command("fleet", *ask, "--where", "quality=drops") == 2
    assert "no run is of good quality; run22 is of bad quality" in capsys.readouterr().err


def test_history_of_a_run_whose_likes_are_of_bad_quality(tmp_path, capsys):
    """The only good run with its number of steps is a history of one, and what is left out is
    said; it is no error, for the others are there."""
    data, storage = stored(tmp_path / "data", [1e8] * 9), LocalStorage(tmp_path / "data")
    commit_batch(storage, [addition(20, {"step": 2e8}, steps=20, quality="drops")])
    commit_batch(storage, [addition(21, {"step": 2e8}, steps=20)])
    assert run_command("fleet", "history", data, "--metric", METRIC) == 0
    out, err = capsys.readouterr()
    assert f"{METRIC}: 1 run, 200 ms" in _plain(out)
    assert err.splitlines() == [
        (
            "left out: 9 runs that are not comparable with the newest run, run21: --where selects "
            "others"
        ),
        "left out: 1 run of bad quality: --bad-quality includes them",
    ]


def _plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("kind", ["drift", "two modes"])
def test_what_is_no_change_is_said_once(tmp_path, capsys, kind):
    """A drift and a second mode are named as what they are; no second line says "no change"."""
    generator = np.random.default_rng(5)
    modes = kind == "two modes"
    values = two_modes(generator, 40, 0.01) if modes else drift(generator, 40, 0.01, 0.004)
    assert (
        run_command("fleet", "history", stored(tmp_path / "data", values), "--metric", METRIC) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if "change" in line] == [kind]


def test_a_run_within_its_history_passes(quiet, capsys, monkeypatch):
    """Exit code 0, a sentence, and no step summary where none is asked for."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert run_command("fleet", "gate", quiet, "run39", "--metric", METRIC) == 0
    assert f"passed: {METRIC} is within its history" in capsys.readouterr().out


def test_a_slower_run_fails(tmp_path, capsys, monkeypatch):
    """Exit code 1 and the reason; the step summary has it, escaped; JSON has the value."""
    values = [*flat(np.random.default_rng(3), 30, 0.01), 1.2e8]
    data = stored(tmp_path / "data", values, model="<b>|m")
    commit_batch(
        LocalStorage(data), [addition(31, {"step": 1.3e8}, model="<b>|m", run_id="<img>|x")]
    )
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", "utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = tmp_path / "gate.json"
    assert run_command("fleet", "gate", data, "--metric", METRIC, "--json", result) == 1
    assert f"FAILED: {METRIC} is slower than its history" in capsys.readouterr().out
    text = summary.read_text("utf-8")
    assert text.startswith("before\n### Gate failed")
    assert "<img>" not in text
    (verdict,) = json.loads(result.read_text("utf-8"))["metrics"]
    assert verdict["value"] == 1.3e8
    assert verdict["outcome"] == "slower"
    assert verdict["change"] > 0.1


def test_less_than_the_limit_passes(tmp_path):
    """3 % slower at 0.2 % noise is outside the history, and within a limit of 5 %."""
    data = stored(tmp_path / "data", [*flat(np.random.default_rng(4), 30, 0.002), 1.03e8])
    found = gate(Dataset(data), "newest", [METRIC], 0.05)
    assert found.verdicts[0].outcome is Outcome.WITHIN_LIMIT
    assert not found.failed
    assert gate(Dataset(data), "newest", [METRIC], 0.02).failed


def test_an_alarm_lasts_until_somebody_accepts_it(tmp_path, capsys):
    """Ten runs after a regression the gate still fails, and names the change; accepted, it passes,
    the reason stands in the history, and a further regression fails anew."""
    values = step(np.random.default_rng(5), 45, 0.01, 30, 0.08)
    data = stored(tmp_path / "data", values)
    assert run_command("fleet", "gate", data, "--metric", METRIC) == 1
    change = f"{METRIC}@{key(30)[:8]}"
    assert f"fleet accept DATASET '{change}'" in capsys.readouterr().out
    assert run_command("fleet", "accept", data, change, "--because", "a better sampler") == 0
    assert run_command("fleet", "gate", data, "--metric", METRIC) == 0
    capsys.readouterr()
    assert run_command("fleet", "history", data, "--metric", METRIC) == 0
    out = capsys.readouterr().out
    assert "accepted: a better sampler" in out
    assert "alarm" not in out
    commit_batch(LocalStorage(data), [addition(50, {"step": 1.2e8})])
    assert gate(Dataset(data), "newest", [METRIC], 0.05).failed


def test_a_change_is_accepted_at_once(tmp_path):
    """Two runs after a step, before it can be placed: accepted, the next run passes; noise comes
    from the runs before."""
    data = stored(tmp_path / "data", step(np.random.default_rng(6), 32, 0.01, 30, 0.1))
    assert gate(Dataset(data), "newest", [METRIC], 0.05).failed
    opened = Dataset(data)
    accept(opened.storage, opened.runs(), f"{METRIC}@{key(30)}", "because")
    assert not gate(Dataset(data), "newest", [METRIC], 0.05).failed


def test_a_repair_ends_an_alarm(tmp_path):
    """Slower for ten runs, then as before: the newest run passes, and no change is open."""
    values = flat(np.random.default_rng(7), 60, 0.01)
    values[30:45] *= 1.1
    found = gate(Dataset(stored(tmp_path / "data", values)), "newest", [METRIC], 0.05)
    assert not found.failed
    assert found.verdicts[0].history.alarm is None
    assert len(found.verdicts[0].history.changes) == 2


def test_what_cannot_be_told_is_said(quiet, tmp_path, capsys):
    """Exit code 2 and one sentence: an unknown run, an unknown metric, too few runs, runs that are
    not comparable, a field that nobody recorded, a run of bad quality."""

    def said(*arguments):
        code = run_command("fleet", "gate", *arguments)
        return code, *capsys.readouterr()

    refused(said(quiet, "nobody"), "has no run 'nobody'")
    refused(said(quiet, "--metric", "vae.call"), "has no vae.call")
    refused(said(quiet, "run3", "--metric", METRIC), "too few comparable runs", "needs 5 more")
    other = tmp_path / "other"
    stored(other, [1e8] * 12)
    storage = LocalStorage(other)
    commit_batch(storage, [addition(20, steps=20)])
    refused(said(other), "not comparable", "steps 20 ≠ 28")
    commit_batch(storage, [addition(21, model=None)])
    refused(said(other), "nobody recorded model", "--assume-same model")
    assert run_command("fleet", "gate", other, "--assume-same", "model") == 0
    commit_batch(storage, [addition(22, quality="drops")])
    refused(said(other), "run22 is of bad quality (events were dropped)")
    commit_batch(storage, [addition(23, quality="residual,tracing_cost")])
    refused(
        said(other),
        "(time that no stage accounts for, tracing took much of its time)",
        "record it again, with --ops none or --ops first,last",
    )


def test_accepting_says_what_is_wrong(quiet):
    """A name that is none, a run that is not there, no reason, and twice."""
    data = Dataset(quiet)
    runs = data.runs()
    for name, because, words in (
        ("denoise.step", "x", "is no change"),
        (f"{METRIC}@ffffffffff", "x", "has no run"),
        (f"{METRIC}@{key(3)}", " ", "--because"),
        (f"speed@{key(3)}", "x", "is no metric"),
    ):
        with pytest.raises(InputError, match=words):
            accept(data.storage, runs, name, because)
    accept(data.storage, runs, f"{METRIC}@{key(3)}", "x", clock=lambda: 5)
    with pytest.raises(InputError, match="accepted already"):
        accept(data.storage, runs, f"{METRIC}@{key(3)}", "y")
    assert [(each.run, each.because, each.when_ns) for each in accepted_changes(data.storage)] == [
        (key(3), "x", 5)
    ]


def test_a_data_set_in_memory():
    """Gate and accept work through fsspec."""
    pytest.importorskip("fsspec")
    place = "memory://gate-of-runs/data"
    values = step(np.random.default_rng(8), 45, 0.01, 30, 0.08)
    runs = [addition(n, {"step": float(value)}) for n, value in enumerate(values)]
    filled(open_storage(place), runs)
    data = Dataset(place)
    assert gate(data, "newest", [METRIC], 0.05).verdicts[0].outcome is Outcome.ALARM
    accept(data.storage, data.runs(), f"{METRIC}@{key(30)}", "because")
    assert not gate(data, "newest", [METRIC], 0.05).failed


def test_hostile_names_stay_text(tmp_path, capsys):
    """Escapes, markup and formulas in a run's name, commit and place reach neither terminal nor
    page as such."""
    name = "\x1b[31m<script>alert(1)</script>"
    values = step(np.random.default_rng(9), 40, 0.01, 30, 0.1)
    runs = [
        addition(n, {"step": float(value)}, run_id=name, commit=name)
        for n, value in enumerate(values)
    ]
    filled(LocalStorage(tmp_path / "data"), runs)
    page = tmp_path / "page.html"
    assert (
        run_command("fleet", "history", tmp_path / "data", "--metric", METRIC, "--html", page) == 0
    )
    assert "\x1b[31m" not in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert "\x1b" not in text
    assert "<script>alert" not in text
    assert text.count("<script") == 2  # the page's data and its own script
