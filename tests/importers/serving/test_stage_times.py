"""Stage times of servers and benchmarks, as their sources write them: runs without commands."""

from __future__ import annotations

import json
from pprint import pformat

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.events import DropKind
from profiler.importers.importing import import_trace
from profiler.importers.registry import recognised
from profiler.sources.load import load
from tests.importers.broken import read_or_refused

DUMP = {
    "timestamp": "2026-01-15T10:00:15+00:00",
    "request_id": "r1",
    "commit_hash": "16831ab6d707070f42275d596ce2b3b2f4d69072",
    "tag": "benchmark_dump",
    "total_duration_ms": 1500.0,
    "steps": [
        {"name": "InputValidationStage", "duration_ms": 1.0},
        {"name": "TextEncodingStage", "duration_ms": 99.0},
        {"name": "QwenImageBeforeDenoisingStage", "duration_ms": 10.0},
        {"name": "DenoisingStage", "duration_ms": 1000.0},
        {"name": "DecodingStage", "duration_ms": 200.0},
    ],
    "denoise_steps_ms": [{"step": 0, "duration_ms": 500.0}, {"step": 1, "duration_ms": 480.0}],
    "memory_checkpoints": {"after_DenoisingStage": {"peak_reserved_mb": 1024.0}},
    "meta": {"prompt": "a secret prompt"},
}
RECORD = {
    "request_id": "r2",
    "timestamp": "2026-01-15T10:00:20+00:00",
    "commit_hash": "N/A",
    "tag": "pipeline_stage_metrics",
    "stages": [
        {"name": "TextEncodingStage", "execution_time_ms": 100.0},
        {"name": "DenoisingStage", "execution_time_ms": 900.0},
    ],
    "steps": [400.0, 450.0],
    "total_duration_ms": 1100.0,
    "memory_snapshots": {},
}


def imported(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load(import_trace([path], folder / "traces"))


def calls(run):
    names = pl.col("submodule", "stage").cast(pl.String)
    return run.calls.select(names, "step", pl.col("duration_ns") // 1_000_000).rows()


def test_a_dump_of_sglang(tmp_path):
    """Stages before the loop encode, those behind it decode; each step is a call; what the loop
    takes beside its steps is the host's; the request ended when it says."""
    run = imported(tmp_path, "perf.json", json.dumps(DUMP, indent=2))
    assert calls(run) == [
        ("InputValidationStage", "encode", -1, 1),
        ("TextEncodingStage", "encode", -1, 99),
        ("QwenImageBeforeDenoisingStage", "encode", -1, 10),
        ("DenoisingStage", "denoise", 0, 500),
        ("DenoisingStage", "denoise", 1, 480),
        ("DecodingStage", "decode", -1, 200),
    ]
    analysis = analyze(run)
    stages = dict(analysis.stages.select("stage", "duration_ns").iter_rows())
    assert {name: ns / 1e6 for name, ns in stages.items()} == {
        "encode": 110.0,
        "denoise": 1000.0,
        "decode": 390.0,
    }
    (pipeline,) = run.spans.filter(pl.col("kind") == "pipeline").rows(named=True)
    assert (pipeline["start_ns"] + pipeline["duration_ns"]) / 1e9 == 1_768_471_215.0
    assert run.counters["value"].to_list() == [1 << 30]
    assert run.info.versions["sglang"].startswith("16831ab6")
    assert not run.commands.height
    assert [drop.detail.code.value for drop in run.drops] == ["without_operations"]
    files = (tmp_path / "traces").rglob("*")
    assert not any(b"secret prompt" in file.read_bytes() for file in files if file.is_file())


def test_a_log_of_sglang_has_a_request_a_line(tmp_path):
    """In the order of their begins; a line that is damaged is counted."""
    later = json.dumps(RECORD)
    earlier = json.dumps(RECORD | {"timestamp": "2026-01-15T10:00:10+00:00"})
    run = imported(tmp_path, "performance.log", "\n".join((later, earlier, later[:90])) + "\n")
    table = analyze(run).requests.sort("pipeline")
    assert table["latency_ns"].to_list() == [1_100_000_000] * 2
    assert table["begin_ns"].to_list() == [0, 10_000_000_000]
    assert table["denoise_ns"].to_list() == [1_000_000_000] * 2  # to the end: nothing is behind it
    assert table["queue_ns"].to_list() == [None, None]
    dropped = [drop.count for drop in run.drops if drop.kind is DropKind.DROPPED_EVENTS]
    assert dropped == [1]


def omni(kind):
    """Two requests of two stages, in one of the three forms."""
    name = "stage_request_stats" if kind == "jsonl" else "Request_stage_stats"
    records = [
        {
            "type": name,
            "stage_id": stage,
            "request_id": f"req-{request}",
            "batch_size": 1,
            "num_tokens_out": 3,
            "stage_gen_time_ms": 30.0 * (stage + 1) + request,
            "rx_decode_time_ms": 0.0,
        }
        for request in (0, 1)
        for stage in (1, 0)
    ]
    if kind == "jsonl":
        whole = {"type": "orchestrator_request_e2e", "request_id": "req-0", "e2e_time_ms": 95.5}
        return "\n".join(map(json.dumps, (*records, whole)))
    if kind == "log":
        whole = {"type": "request_level_metrics", "request_id": "req-0", "e2e_time_ms": 95.5}
        return "\n".join(
            f"INFO [a.py:1] {pformat(one, sort_dicts=False)}" for one in (*records, whole)
        )
    tables = []
    for request in (0, 1):
        values = f"{30.0 + request:,.3f} | {60.0 + request:,.3f} (n=2)"
        head = f"INFO 08-05 [stats.py:791] [StageRequestStats [request_id=req-{request}]]"
        tables += [head, "| Field | 0 | 1 |", f"| stage_gen_time_ms | {values} |"]
        if not request:
            tables += ["[RequestE2EStats [request_id=req-0]]", "| e2e_total_ms | 95.500 |"]
    return "\n".join(tables)


@pytest.mark.parametrize("kind", ["jsonl", "log", "tables"])
def test_stages_of_vllm_omni(tmp_path, kind):
    """Records are joined by request, stages are in their order, the whole request is as long as it
    says; in each form."""
    run = imported(tmp_path, f"omni.{kind}", omni(kind))
    assert calls(run) == [
        ("stage 0", "run", -1, 30),
        ("stage 1", "run", -1, 60),
        ("stage 0", "run", -1, 31),
        ("stage 1", "run", -1, 61),
    ]
    table = analyze(run).requests.sort("pipeline")
    assert table["latency_ns"].to_list() == [95_500_000, 92_000_000]
    codes = [drop.detail.code.value for drop in run.drops]
    assert codes == ["without_operations", "requests_in_order"]


TABLE = (
    "scenario,model_cls,num_params_B,flops_G,time_plain_s,mem_plain_GB,time_compile_s,mem_compile_GB,"
    "fullgraph,mode\n"
    "sdxl-bf16,UNet2DConditionModel,2.57,5979.1,0.074 (0.079),5.05,0.054,5.24,True,default\n"
    "sdxl-offload,UNet2DConditionModel,2.57,5979.1,0.56,0.2,nan,nan,,\n"
    "sdxl-broken,UNet2DConditionModel,2.57,5979.1,,,,,,\n"
)


def test_the_table_of_diffusers(tmp_path):
    """A scenario is a request, its model plain and compiled two submodules; a row without a time is
    counted."""
    run = imported(tmp_path, "flux.csv", TABLE)
    assert calls(run) == [
        ("UNet2DConditionModel", "run", -1, 74),
        ("UNet2DConditionModel.compiled", "run", -1, 54),
        ("UNet2DConditionModel", "run", -1, 560),
    ]
    assert analyze(run).requests.sort("pipeline")["name"].to_list() == ["sdxl-bf16", "sdxl-offload"]
    assert [drop.count for drop in run.drops if drop.kind is DropKind.DROPPED_EVENTS] == [1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sglang", json.dumps(DUMP)),
        ("sglang", json.dumps(RECORD)),
        ("vllm_omni", omni("jsonl")),
        ("vllm_omni", omni("tables")),
        ("diffusers_csv", TABLE),
    ],
)
def test_cut_files_end_in_a_sentence_or_less(tmp_path, name, text):
    """At whatever byte: what is whole is read, or one sentence says that nothing is."""
    path = tmp_path / "whole"
    path.write_text(text)
    assert recognised([path]).name == name
    for number, length in enumerate(range(40, len(text), 97)):
        path = tmp_path / str(number)
        path.write_text(text[:length])
        read_or_refused(import_trace, [path], tmp_path / "traces", str(number))


@pytest.mark.parametrize("time", ["-1", "1e300", "NaN", '"soon"', "true", "null"])
def test_a_time_that_is_none_is_left_out(tmp_path, time):
    """Of a stage; the others are read."""
    text = json.dumps(DUMP).replace("99.0", time)
    try:
        run = imported(tmp_path, "perf.json", text)
    except InputError:
        assert time == "NaN"  # is no JSON
        return
    assert "TextEncodingStage" not in run.calls["submodule"].cast(pl.String).to_list()
    assert len(run.calls) == 5


def test_two_dumps_are_compared(tmp_path, cli):
    """A server's stages before and after: for history and comparison."""
    slower = json.loads(json.dumps(DUMP).replace("200.0", "300.0"))
    for name, document in (("old.json", DUMP), ("new.json", slower)):
        (tmp_path / name).write_text(json.dumps(document))
    code, out, err = cli("diff", tmp_path / "old.json", tmp_path / "new.json")
    assert code == 0, err
    assert "DecodingStage" in out
