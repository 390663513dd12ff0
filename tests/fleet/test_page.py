"""`fleet page` on a data set whose truth is known: its tables are what the analyses say."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.fleet import Dataset, LocalStorage
from profiler.fleet.compare import overview
from profiler.fleet.dataset import comparable_with_none, groups, identities, names
from profiler.fleet.history import (
    ChangeState,
    RunVerdict,
    State,
    accept,
    change_state,
    levels,
    metric_history,
    run_verdicts,
    state_of,
)
from profiler.fleet.page import CURVES, HELD, overview_page, reports_beside
from tests.command_line import refused, run_command
from tests.fleet.histories import flat, step, two_modes
from tests.fleet.overviews import CHANGED, RUNS, three_workloads
from tests.fleet.simulated import addition, filled, key


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return three_workloads(tmp_path_factory.mktemp("page") / "data")


def tables_of(text):
    """The tables that a page's data hold, by key: rows."""
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', text, re.S)
    assert found is not None
    return {
        name: [
            dict(zip(table["values"], row, strict=True))
            for row in zip(*table["values"].values(), strict=True)
        ]
        for name, table in json.loads(found[1])["tables_shown"].items()
    }


@pytest.fixture(scope="module")
def page(data):
    """The page's text."""
    out = data.parent / "fleet.html"
    assert run_command("fleet", "page", data, "--out", out) == 0
    return out.read_text("utf-8")


def test_each_workload_is_in_the_state_it_was_given(data, page):
    """A step of 8 %, a drift, nothing: the headline counts them, the table has median, level, and
    state of each, the most urgent first."""
    rows = tables_of(page)["workloads_0"]
    states = {row["workload"]: row["state"] for row in rows}
    assert states == {
        "sd3.5, steps=28": "slower, not accepted",
        "sd3.5, steps=50": "drift",
        "flux": "steady",
    }
    assert [row["runs"] for row in rows] == [RUNS] * 3
    runs = Dataset(data).history("elapsed", ("model=sd3.5", "steps=28", "cache=none"))["value"]
    assert rows[0]["median"] == pytest.approx(np.median(runs), rel=1e-4)
    assert rows[0]["now"] == pytest.approx(np.median(runs[CHANGED:]), rel=1e-4)
    assert rows[0]["spread"] == pytest.approx(0.01, abs=0.005)
    headline = "120 runs of 3 workloads: 1 slower (not accepted), 1 drifting, 1 steady"
    assert f">{headline}</span></h1>" in page


def test_the_change_is_that_of_the_history(data, page):
    """One row: the run before and the first after it with commits, the size, an alarm; the same as
    `metric_history` finds, and as it was planted. The drift is none."""
    (row,) = tables_of(page)["changes"]
    good, bad = 3 * (CHANGED - 1), 3 * CHANGED
    assert (row["last_good"], row["first_bad"]) == (f"run{good}", f"run{bad}")
    assert row["by"] == pytest.approx(0.08, abs=0.01)
    assert (row["workload"], row["state"]) == ("sd3.5, steps=28", "alarm")
    assert row["change"] == f"elapsed@{key(bad)[:8]}"
    where = ("model=sd3.5", "steps=28", "cache=none")
    past = metric_history("elapsed", Dataset(data).history("elapsed", where), family=3)
    assert [each.change.change for each in past.changes] == [pytest.approx(row["by"], rel=1e-4)]


def test_slowest_runs_are_held_against_their_own_workload(data, page):
    """A run of the workload that takes ten times as long is none of the slowest for that; each
    share is the value over the median of the runs like it."""
    rows = tables_of(page)["slowest"]
    assert [row["against"] for row in rows] == sorted(
        (row["against"] for row in rows), reverse=True
    )
    medians = {}
    for where in (("model=flux",), ("steps=50",), ("model=sd3.5", "steps=28", "cache=none")):
        found = Dataset(data).history("elapsed", where)
        medians |= dict.fromkeys(found["run_id"], float(np.median(found["value"])))
    for row in rows:
        assert row["median"] == pytest.approx(medians[row["run"]], rel=1e-4)
        assert row["against"] == pytest.approx(row["value"] / medians[row["run"]] - 1, abs=1e-4)
    assert {row["workload"] for row in rows[:5]} != {"sd3.5, steps=50"}


def test_newest_runs_come_first(data, page):
    """All runs of good quality by time, also that which is comparable with none."""
    rows = tables_of(page)["newest"]
    assert [row["run"] for row in rows[:3]] == ["run501", "run119", "run118"]
    assert rows[0]["workload"] is None
    assert rows[0]["against"] is None
    assert len(rows) == 121


def test_bad_quality_stands_apart_and_is_told(data, page, tmp_path):
    """Its own table, with what is bad; in no other. `--bad-quality` takes it."""
    (row,) = tables_of(page)["bad"]
    assert (row["run"], row["why"], row["drops"], row["residual"]) == (
        "run500",
        "drops, residual",
        3,
        0.05,
    )
    assert "Of bad quality, and in none of the rest: 1 run." in page
    assert "not recorded: cache" in page
    assert all(row["run"] != "run500" for row in tables_of(page)["newest"])
    out = tmp_path / "all.html"
    assert run_command("fleet", "page", data, "--out", out, "--bad-quality") == 0
    tables = tables_of(out.read_text("utf-8"))
    assert "bad" not in tables
    assert any(row["run"] == "run500" for row in tables["newest"])


def test_the_page_is_korean_as_well(page):
    """Headline, headings, sentences of the histories, columns, words of states."""
    assert re.search(r"<h1><span data-ko=\"워크로드 3개의 실행 120개", page)
    for element in re.findall(r"<(?:h2|p)[ >].*?</(?:h2|p)>", page):
        assert (
            "data-ko=" in element
            or "<noscript" in element
            or "lang=" in element
            or ("need JavaScript" in element)
        ), element
    found = re.search(r'id="page-data">(.*?)</script>', page, re.S)
    assert found is not None
    korean = json.loads(found[1])["messages"]["ko"]
    for text in ("slower, not accepted", "workload", "against median", "drops, residual"):
        assert re.search(r"[가-힣]", korean[text]), text


def test_two_metrics_make_two_tables(data, tmp_path):
    """Each metric has its table of workloads; the first ranks the runs."""
    out = tmp_path / "two.html"
    options = ("--metric", "denoise.step", "--metric", "elapsed", "--out", out)
    assert run_command("fleet", "page", data, *options) == 0
    tables = tables_of(out.read_text("utf-8"))
    assert {"workloads_0", "workloads_1"} <= set(tables)
    assert {row["value"] for row in tables["newest"]} == {5e6}


def test_hostile_names_are_inert(tmp_path):
    """Markup and escapes in names, commits, models and places: no element, no attribute, no end of
    the data; a place is no link that leads elsewhere."""
    name = '\x1b[31m"><script>alert(1)</script><!--'
    columns = {"run_id": name, "commit": name, "hardware": name}
    folder = three_workloads(tmp_path / "data", **columns)
    out = tmp_path / "page.html"
    for command in (("page", "--out", out), ("history", "--html", out, "--assume-same", "cache")):
        assert run_command("fleet", command[0], folder, *command[1:]) == 0
        text = out.read_text("utf-8")
        assert "\x1b" not in text
        assert "<script>alert" not in text
        assert text.count("<script") == 2
        assert text.count("<!--") == 0


def test_a_report_beside_the_page_is_linked(tmp_path):
    """The path from the page's folder to the report in the bundle; none where there is no report,
    for a URL, and for a page on stdout."""
    bundle = tmp_path / "traces" / "a run"
    bundle.mkdir(parents=True)
    (bundle / "report.html").write_text("", "utf-8")
    pages = tmp_path / "pages"
    pages.mkdir()
    beside = reports_beside(pages)
    assert beside(str(bundle)) == "../traces/a run/report.html"
    assert beside(str(tmp_path)) is None
    assert beside("s3://bucket/run") is None
    assert beside("javascript:alert(1)") is None
    assert reports_beside(None)(str(bundle)) is None


def test_what_cannot_be_shown_is_said(data, tmp_path, capsys):
    """Exit code 2 and one sentence, and nothing is written."""
    out = tmp_path / "page.html"

    def said(*arguments):
        code = run_command("fleet", "page", *arguments, "--out", out)
        return code, *capsys.readouterr()

    refused(said(tmp_path), "data set")
    refused(said(data, "--metric", "vae.call"), "no run has vae.call")
    refused(said(data, "--where", "steps=3"), "--where")
    refused(said(data, "--assume-same", "colour"), "is no field of the identity")
    assert not out.exists()
    assert run_command("fleet", "page", data, "--out", tmp_path / "no" / "page.html") == 2


def test_a_page_on_stdout_is_nothing_else(data, capsys):
    """`--out -` writes the page; what is said goes to stderr."""
    assert run_command("fleet", "page", data, "--out", "-") == 0
    out, err = capsys.readouterr()
    assert out.startswith("<!doctype html>")
    assert out.rstrip().endswith("</html>")
    assert "120 runs of 3 workloads" in err


def test_large_data_sets_are_cut_and_said(tmp_path, monkeypatch):
    """More workloads and runs than a page holds: fewer rows and curves, and a sentence."""
    monkeypatch.setitem(HELD, "newest", 5)
    monkeypatch.setattr("profiler.fleet.page.CURVES", 2)
    runs = [addition(n, {"elapsed": 1e8 + n}, model=f"model{n % 4}") for n in range(12)]
    filled(LocalStorage(tmp_path / "data"), runs)
    found = overview(Dataset(tmp_path / "data"))
    text = overview_page("data", found, reports_beside(None))
    assert len(tables_of(text)["newest"]) == 5
    assert "This page holds 5 of 12 rows." in text
    assert text.count("<svg") == 2
    assert "Of 4 workloads the 2 most urgent have a curve here" in text
    assert CURVES >= 20


def test_runs_that_are_comparable_with_none_are_shown(tmp_path):
    """No workload, no history: the newest runs and why, and no headings above nothing."""
    filled(LocalStorage(tmp_path / "data"), [addition(n, weights=None) for n in range(3)])
    text = overview_page("data", overview(Dataset(tmp_path / "data")), reports_beside(None))
    assert set(tables_of(text)) == {"newest"}
    assert "No comparable runs" in text
    assert "3 runs, such as run0; not recorded: weights; --assume-same weights" in text
    assert re.findall(r'<section[^>]* id="([^"]*)"', text) == ["summary", "newest", "slowest"]


def test_a_metric_that_is_nothing_is_shown(tmp_path):
    """Values of 0 have no ratios: the pages show none, and are made."""
    runs = [addition(n, {"elapsed": 0.0}) for n in range(12)]
    filled(LocalStorage(tmp_path / "data"), runs)
    out = tmp_path / "page.html"
    for command in (("page", "--out"), ("history", "--html")):
        assert run_command("fleet", command[0], tmp_path / "data", command[1], out) == 0
    rows = tables_of(out.read_text("utf-8"))["history_0"]
    assert {(row["value"], row["against"]) for row in rows} == {(0.0, None)}


def test_an_empty_data_set_is_said(tmp_path):
    """No run: one sentence, and no page."""
    filled(LocalStorage(tmp_path / "data"), [])
    with pytest.raises(InputError, match="no run"):
        overview(Dataset(tmp_path / "data"))


def history_of(tmp_path, values):
    folder = tmp_path / "data"
    filled(LocalStorage(folder), [addition(n, {"elapsed": float(v)}) for n, v in enumerate(values)])
    return Dataset(folder)


def past_of(data):
    (workload,) = overview(data).workloads
    return workload.histories[0]


def test_states_of_histories(tmp_path):
    """Accepted ends an alarm; two modes, the newest outside, and too few are told apart."""
    changed = history_of(tmp_path / "a", step(np.random.default_rng(5), 40, 0.01, 30, 0.1))
    assert state_of(past_of(changed)) is State.CHANGE
    accept(changed.storage, changed.runs(), f"elapsed@{key(30)}", "a better sampler")
    past = past_of(changed)
    assert state_of(past) is State.ACCEPTED
    assert run_verdicts(past)[30] is RunVerdict.FIRST_ACCEPTED
    modes = history_of(tmp_path / "b", two_modes(np.random.default_rng(3), 60, 0.005))
    assert state_of(past_of(modes)) is State.TWO_MODES
    outside = history_of(tmp_path / "c", [*flat(np.random.default_rng(4), 30, 0.01), 1.3e8])
    assert state_of(past_of(outside)) is State.OUTSIDE
    assert run_verdicts(past_of(outside))[-1] is RunVerdict.OUTSIDE
    assert state_of(past_of(history_of(tmp_path / "d", [1e8] * 5))) is State.FEW


def test_verdicts_and_levels_of_runs(tmp_path):
    """Before a change a run is on its level, the first after it is bad, those that follow are on a
    level that nobody accepted; the level is the median between changes. Repaired, it is gone."""
    values = step(np.random.default_rng(5), 40, 0.01, 30, 0.1)
    past = past_of(history_of(tmp_path / "a", values))
    verdicts = run_verdicts(past)
    assert set(verdicts[:30]) == {RunVerdict.ON_LEVEL}
    assert verdicts[30] is RunVerdict.FIRST_BAD
    assert set(verdicts[31:]) == {RunVerdict.NOT_ACCEPTED}
    assert levels(past)[0] == np.median(values[:30])
    assert levels(past)[-1] == np.median(values[30:])
    repaired = flat(np.random.default_rng(7), 60, 0.01)
    repaired[30:45] *= 1.1
    past = past_of(history_of(tmp_path / "b", repaired))
    states = [change_state(past, each) for each in past.changes]
    assert states == [ChangeState.GONE, ChangeState.FASTER]
    assert run_verdicts(past)[45] is RunVerdict.FIRST_FASTER


def test_names_tell_workloads_apart(tmp_path):
    """A model alone is its name; of several groups of one model what differs is in it."""
    runs = [
        addition(0, model="flux"),
        addition(1),
        addition(2, steps=50, hardware="1 × AMD Instinct MI300X"),
        addition(3, cache=None),
    ]
    filled(LocalStorage(tmp_path / "data"), runs)
    grouped = groups(Dataset(tmp_path / "data").runs())
    assert sorted(names(identities(grouped)).values()) == [
        "flux",
        "sd3.5, steps=28, 1 × NVIDIA H100",
        "sd3.5, steps=50, 1 × AMD Instinct MI300X",
    ]
    (apart,) = comparable_with_none(grouped.filter(grouped["group"].is_null()))
    assert (apart.runs, apart.example, [one.field for one in apart.why]) == (1, "run3", ["cache"])


def test_of_lists_the_entries_that_differ_are_in_a_name(tmp_path):
    """Of the software of two groups only the package whose version differs, which a column of a
    table has room for."""
    software = (
        "diffusers 0.42.1, torch 2.13.0, transformers 5.23.0",
        "diffusers 0.42.1, torch 2.14.0",
    )
    runs = [addition(number, software=one) for number, one in enumerate(software)]
    filled(LocalStorage(tmp_path / "data"), runs)
    grouped = groups(Dataset(tmp_path / "data").runs())
    assert sorted(names(identities(grouped)).values()) == [
        "sd3.5, torch 2.13.0, transformers 5.23.0",
        "sd3.5, torch 2.14.0",
    ]


def test_the_history_page_has_the_runs(data, tmp_path):
    """A row a run, the newest first, with commit, time, value, interval and verdict."""
    out = tmp_path / "history.html"
    options = ("--where", "steps=28", "--where", "model=sd3.5", "--where", "cache=none")
    assert run_command("fleet", "history", data, *options, "--html", out, "--language", "ko") == 0
    text = out.read_text("utf-8")
    rows = tables_of(text)["history_0"]
    assert [row["run"] for row in rows] == [f"run{3 * n}" for n in reversed(range(RUNS))]
    assert rows[RUNS - 1 - CHANGED]["verdict"] == "first bad run"
    assert {row["verdict"] for row in rows[RUNS - CHANGED :]} == {"on its level"}
    values = Dataset(data).history("elapsed", ("steps=28", "model=sd3.5", "cache=none"))["value"]
    assert [row["value"] for row in rows] == pytest.approx(values.reverse().to_list(), rel=1e-4)
    assert '"language":"ko"' in text
    assert "의 이력</title>" not in text
    assert re.search(r"data-ko=\"[^\"]*의 이력\"", text)
