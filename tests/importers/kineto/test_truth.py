"""Tiles of shared traces against figures that an independent script made by the same rules.

../shared/corpus/truth_torch.json
"""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest

from profiler.analysis import ReportInput, headline
from profiler.analysis.analyze import analyze
from profiler.analysis.steps import step_section_parts
from profiler.tools.sources import load
from tests.corpus import CORPUS, SD35, needs_corpus

pytestmark = needs_corpus

_TRUTH = CORPUS / "truth_torch.json"
_SUBMODULE = {  # of the classes of SD3.5; elsewhere a submodule has its class's name
    "CLIPTextModelWithProjection": ("text_encoder", "text_encoder_2"),
    "T5EncoderModel": ("text_encoder_3",),
    "SD3Transformer2DModel": ("transformer",),
    "Decoder": ("vae",),
}


_RAN = ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset")
_SAMPLED = ("trace_filter/",)  # thinned: which of two calls what is missing counts to is open
_STILL_LAUNCHING = {  # ms of gaps in which the launch that ends them, begun ahead, had not returned
    "resnet50_num_workers_4": 1.322 + 0.147,  # cudaMemsetAsync; a copy of pageable memory
    "trace_filter/": 0.023,  # a copy that blocked
}


def _traces():
    documents = json.loads(_TRUTH.read_text()) if _TRUTH.is_file() else {}
    return {name: truth for name, truth in documents.items() if name != "_about"}


def _ours(name):
    """What we call the calls of a class or an annotation."""
    return _SUBMODULE.get(name, (name.strip("# "),))


def _near(expected):
    """Within 1 %, or 0.02 ms where that is more: the truth's own tolerance."""
    return pytest.approx(expected, rel=0.01, abs=0.02)


def _recorded_ms(path):
    """From the first operator or work of a device to the last."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kept = [one for one in events if one.get("cat") in _RAN and "dur" in one]
    last = max(one["ts"] + one["dur"] for one in kept)
    return (last - min(one["ts"] for one in kept)) / 1e3


@pytest.fixture(scope="module", params=_traces().items(), ids=lambda item: item[0])
def pair(request):
    name, truth = request.param
    with_close = load(CORPUS / name)
    yield with_close, {"name": name, "classes": [], "calls": [], "elapsed_in_calls": 0, **truth}
    with_close.close()


def _matched(run, truth):
    """Each call of the truth with the tile of ours; ours has some more, of other modules."""
    submodules = {name for c in truth["classes"] for name in _ours(c)}
    named = run.calls.with_columns(pl.col("submodule").cast(pl.String))
    calls = named.filter(pl.col("submodule").is_in(sorted(submodules)))
    tiles = calls.select("call", "submodule").join(run.tiles.calls, on="call")
    rows = tiles.sort("begin_ns").to_dicts()
    assert len(rows) == len(truth["calls"])
    return list(zip(rows, truth["calls"], strict=True))


def test_calls_and_their_time_on_the_device(pair):
    """Name, elapsed, busy, idle, launch-bound, hidden and unrecorded time, and the lead of every
    call. To the script a launch is late that begins late. The VAE's call is its `decode` method,
    which begins 0.02 ms before its module."""
    run, truth = pair
    for tile, expected in _matched(run, truth):
        name = expected["name"]
        assert tile["submodule"] in _ours(name)
        assert tile["elapsed_ns"] / 1e6 == _near(expected["elapsed"])
        assert tile["busy_ns"] / 1e6 == _near(expected["busy"])
        spread = 0.03 if name == "Decoder" else 0.0
        idle = tile["idle_inside_ns"] / 1e6, tile["launch_bound_ns"] / 1e6
        assert idle[0] == pytest.approx(expected["idle"], rel=0.01, abs=max(spread, 0.02))
        late = sum(ms for part, ms in _STILL_LAUNCHING.items() if part in truth["name"])
        over = idle[1] - expected["launch_bound"]
        near = max(0.01 * expected["launch_bound"], spread, 0.02)
        assert -near <= over <= late + near
        assert tile["hidden_ns"] / 1e6 == _near(expected["hidden"])
        if not any(part in truth["name"] for part in _SAMPLED):
            assert tile["unrecorded_ns"] / 1e6 == _near(expected["unrecorded"])
        lead = tile["queue_lead_ns"]
        assert (lead is None) == (expected["lead"] is None)
        assert (lead or 0) / 1e6 == _near(expected["lead"] or 0)


def test_other_calls_take_less_than_a_hundredth(pair):
    """What the truth leaves out are modules of less than 1 % of the run. Where it has no calls,
    ours is the whole trace."""
    run, truth = pair
    if truth["calls_from"] == "none":
        assert run.tiles.calls["elapsed_ns"].to_list() == [run.tiles.whole.elapsed_ns]
        return
    known = sum(tile["elapsed_ns"] for tile, _ in _matched(run, truth))
    assert known / 1e6 == _near(truth["elapsed_in_calls"])
    assert run.tiles.calls["elapsed_ns"].sum() <= 1.01 * known


def test_end_to_end_and_devices(pair):
    """From the first tile or command to the last, and what each device did. Where there are no
    calls, what the host did before its first launch is of the run, too, which the script leaves
    out."""
    run, truth = pair
    whole = run.tiles.whole
    expected = truth["end_to_end"]
    if truth["calls_from"] == "none":
        expected = _recorded_ms(CORPUS / truth["name"])
    assert whole.elapsed_ns / 1e6 == _near(expected)
    assert len(run.tiles.devices) == len(truth["devices"])
    for row, device in zip(run.tiles.devices.to_dicts(), truth["devices"], strict=True):
        assert row["device"].rpartition(":")[2] == str(device["device"])
        assert (row["last_ns"] - row["first_ns"]) / 1e6 == _near(device["span"])
        assert row["idle_ns"] / 1e6 == _near(device["idle"])
        within = device["span"] - device["busy"] - device["idle"]  # not before its first event
        assert row["unrecorded_ns"] / 1e6 == _near(max(within, 0.0))
        assert row["carried_over"] == device["carried_over"]["events"]
        assert row["carried_over_ns"] / 1e6 == _near(device["carried_over"]["busy"])


def test_waits_of_the_host(pair):
    """Synchronizations, and the copies that blocked, take what they took."""
    run, truth = pair
    hosts = run.commands.filter(pl.col("category").is_in(["host", "sync"]))
    for name, expected in truth.get("waits", {}).items():
        found = hosts.filter(pl.col("layer").cast(pl.String) == name)["duration_ns"].sum()
        assert found / 1e6 == _near(expected)


def test_nothing_but_diffusion_denoises(pair):
    """Language models run, and training does: no encoders, no steps."""
    run, truth = pair
    diffusion = "steps" in truth and truth["calls_from"] == "modules"
    assert (run.calls["stage"].cast(pl.String).unique().to_list() == ["run"]) != diffusion
    assert bool((run.calls["step"] >= 0).any()) == diffusion


def test_steps_and_the_time_between_them(pair):
    """Length and busy time of each step, from its first tile to its last, and what lies between."""
    run, truth = pair
    expected = truth.get("steps", {"elapsed": [], "busy": [], "between": []})
    if truth["calls_from"] != "modules" and "steps" in truth:
        iterations = run.calls.select("call", "iteration").join(run.tiles.calls, on="call")
        assert (iterations["elapsed_ns"] / 1e6).to_list() == _near(expected["elapsed"])
        assert iterations["iteration"].to_list() == list(range(5, 5 + len(expected["elapsed"])))
        return
    analysis = analyze(run)
    steps = analysis.steps.select(pl.col("elapsed_ns", "between_ns") / 1e6)
    assert steps["elapsed_ns"].to_list() == _near(expected["elapsed"])
    assert steps["between_ns"].drop_nulls().to_list() == _near(expected["between"])
    busy = analysis.calls.filter(pl.col("step") >= 0)["busy_ns"] / 1e6
    assert busy.to_list() == _near(expected["busy"])


def test_stages_add_up_to_the_time_on_the_device(pair):
    """Stages = calls + host work + idle = end to end, with nothing left over, and no share is below
    0 or above 1; the end-to-end time is at least that from the first tile to the last command."""
    run, truth = pair
    analysis = analyze(run)
    account = analysis.accounting
    parts = [s.calls_ns + s.host_ns + s.idle_ns for s in account.stages]
    assert sum(parts) == account.end_to_end_ns
    assert (account.unaccounted_ns, account.residual_share) == (0, 0.0)
    assert account.end_to_end_ns / 1e6 >= 0.99 * truth["end_to_end"]
    assert account.unrecorded_ns / 1e6 == _near(sum(d["unrecorded"] for d in truth["devices"]))
    for table in (analysis.calls, analysis.submodules, analysis.stages):
        assert table["share"].is_between(0, 1).all()
    for name in ("utilization", "idle_share", "calls_share"):
        assert analysis.devices[name].drop_nulls().is_between(0, 1).all()


def test_the_headline_has_the_shares_of_the_device():
    """SD3.5: four transformer calls are 83 % of 1.19 s, over a third of that launch-bound."""
    with_close = load(SD35)
    text = headline(analyze(with_close), 0).replace("\N{NO-BREAK SPACE}", " ")
    with_close.close()
    assert text.startswith("1.19 s for 4 steps: the GPU computes 60 % and waits for the host 38 %")


def test_each_step_says_how_much_of_it_is_launch_bound():
    """SD3.5: 91 to 93 ms of each step, of 248 to 250."""
    with_close = load(SD35)
    steps = next(step_section_parts(ReportInput(analyze(with_close), 0, 1)))
    with_close.close()
    text = steps.notes[0].replace("\N{NO-BREAK SPACE}", " ")
    assert text.startswith("90.8 ms to 92.9 ms of each step are launch-bound")
