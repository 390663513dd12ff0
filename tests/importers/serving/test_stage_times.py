"""Stage times of servers and benchmarks, as their sources write them: runs without commands."""

from __future__ import annotations

import json
import os
from pprint import pformat

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.tools.sources import load
from profiler.trace import DropKind
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
    "meta": {"prompt": "a secret prompt", "model": "/home/secret prompt/FLUX.1-dev"},
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
    assert run.info.settings["sglang_commit"].startswith("16831ab6")
    assert (run.info.pipeline, run.info.model) == ("sglang", "FLUX.1-dev")
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


TIMING = (
    "INFO [OmniTiming] req=chatcmpl-a total=32.99s preprocess=2.80s engine=30.19s "
    "stages=[0:ar=16.23s,1:diffusion=13.95s] transfers=[0->1=0.780ms]\n"
)
TABLES = """\
[Stage-0] INFO 08-05 [stats.py:791]
[RequestE2EStats [request_id=chatcmpl-a]]
+-----------------------+------------+
| Field                 |      Value |
+-----------------------+------------+
| e2e_total_ms          | 30,190.000 |
| request_wall_time_ms  | 32,990.000 |
| input_preprocess_time_ms | 2,800.000 |
[StageRequestStats [request_id=chatcmpl-a]]
| Field             |       0:ar | 1:diffusion |
| stage_gen_time_ms | 16,230.125 |  13,950.250 |
[TransferEdgeStats [request_id=chatcmpl-a]]
| Field             |  0->1 |
| size_kbytes       | 2.000 |
| tx_time_ms        | 0.500 |
| rx_decode_time_ms | 0.250 |
| in_flight_time_ms | 0.030 |
"""


def between(run):
    """What the host did between stages."""
    return run.commands.select(
        pl.col("layer", "stage").cast(pl.String), "start_ns", "duration_ns", "bytes_read"
    ).rows()


def test_names_and_transfers_of_vllm_omni(tmp_path):
    """A line a request names its stages, what went before them, and what lies between them."""
    run = imported(tmp_path, "omni.log", TIMING)
    assert calls(run) == [("ar", "run", -1, 16_230), ("diffusion", "run", -1, 13_950)]
    moved = (2_800 + 16_230) * 1_000_000
    assert between(run) == [
        ("preprocess", "run", 0, 2_800_000_000, None),
        ("transfer 0->1", "run", moved, 780_000, None),
    ]
    assert run.calls["start_ns"].to_list() == [2_800_000_000, moved + 780_000]
    assert analyze(run).stages["duration_ns"].to_list() == [32_990_000_000]


def test_the_finest_times_of_a_request_are_taken(tmp_path):
    """Tables tell more of a request than its line; both are one request."""
    for text in (TABLES + TIMING, TIMING + TABLES):
        folder = tmp_path / str(len(text) + text.index("[OmniTiming]"))
        folder.mkdir()
        run = imported(folder, "omni.log", text)
        names = pl.col("submodule").cast(pl.String)
        assert run.calls.select(names, "duration_ns").rows() == [
            ("ar", 16_230_125_000),
            ("diffusion", 13_950_250_000),
        ]
        assert [(row[0], row[3], row[4]) for row in between(run)] == [
            ("preprocess", 2_800_000_000, None),
            ("transfer 0->1", 780_000, 2048),
        ]
        assert analyze(run).stages["duration_ns"].to_list() == [32_990_000_000]


def _line(label, value):
    return f"INFO 06-01 10:00:00 [stats.py:412] {label:<42}{value:>16}"


def _stage(number, name, *told):
    head = f"------------ Stage {number} Breakdown ------------"
    lines = [_line(f"{label} (ms):", f"{ms:,.3f}") for label, ms in told]
    return [f"INFO 06-01 10:00:00 [stats.py:412] {head}", *lines, _line("Stage name:", name)]


def summary(requests, named):
    """A block of these requests (id, whole, stages of name, queue, execution, output, hand-off) as
    today's source prints it, or, not `named`, as that of spring 2026 did."""
    lines = ["INFO ============ Omni Metrics Summary ============"]
    lines += [_line("Successful requests:", len(requests))]
    lines += [_line("Total E2E time (ms):", f"{sum(whole for _, whole, _ in requests):,.3f}")]
    lines += [_line("Input preprocess time (ms):", "57.000"), ""]
    lines += ["------------ Overall Time Breakdown ------------"]
    lines += [_line("Stage 0 execution time (ms):", "1.000")]
    for identity, _, stages in requests:
        if named:
            lines += [f"INFO ------------ Request {identity} Breakdown ------------"]
            lines += [_line("Input preprocess time (ms):", "57.000")]
        for number, (name, queued, ran, output, handoff) in enumerate(stages):
            told = [("Output processor time", output)]
            told = [
                *((("Queue wait time", queued), ("Execution time", ran)) if named else ()),
                *(() if named else (("Stage generation time", ran),)),
                *told,
            ]
            lines += _stage(number, name, *told)
            if handoff:
                head = f"Stage {number} -> Stage {number + 1} Handoff"
                lines += [f"------------ {head} ------------"]
                lines += [_line("Handoff total time (ms):", f"{handoff:,.3f}")]
    return "\n".join((*lines, ""))


@pytest.mark.parametrize("named", [True, False])
def test_summary_of_vllm_omni(tmp_path, named):
    """The block that is logged behind each request: stages by name with what they executed, what
    is before them; the line before an older block, which names no request, is its own."""
    stages = [("ar", 12.5, 9910.007, 7.0, 245.895), ("diffusion", 0.0, 30379.198, 10.0, 0)]
    timing = TIMING.replace("32.99s", "41.36s")
    run = imported(
        tmp_path, "omni.log", timing + summary([("chatcmpl-a", 41356.133, stages)], named)
    )
    names = pl.col("submodule").cast(pl.String)
    assert run.calls.select(names, "duration_ns").rows() == [
        ("ar", 9_910_007_000),
        ("diffusion", 30_379_198_000),
    ]
    queue = [("queue 0", 12_500_000)] if named else []
    assert [(row[0], row[3]) for row in between(run)] == [
        ("preprocess", 57_000_000),
        *queue,
        ("output 0", 7_000_000),
        ("transfer 0->1", 245_895_000),
    ]
    assert run.spans.filter(pl.col("kind") == "pipeline")["duration_ns"].to_list() == [
        41_356_133_000
    ]


@pytest.mark.parametrize("named", [True, False])
def test_summary_of_several_requests(tmp_path, named):
    """A block of a batch: each request is one, with its own queue where that is told."""
    requests = [
        (
            f"r{number}",
            100.0,
            [("ar", 3.0 * number, 40.0 + number, 1.0, 2.0), ("vae", 0.0, 20.0, 1.0, 0)],
        )
        for number in range(3)
    ]
    run = imported(tmp_path, "omni.log", summary(requests, named))
    assert calls(run) == [
        (name, "run", -1, ms)
        for number in range(3)
        for name, ms in (("ar", 40 + number), ("vae", 20))
    ]
    queued = analyze(run).requests.sort("pipeline")["queue_ns"].fill_null(0).to_list()
    assert queued == ([0, 3_000_000, 6_000_000] if named else [0, 0, 0])


def test_summary_without_times_is_a_sentence(tmp_path):
    """A block that is cut before its first stage."""
    path = tmp_path / "omni.log"
    path.write_text("============ Omni Metrics Summary ============\nTotal E2E time (ms):  5.000\n")
    with pytest.raises(InputError, match="no time of a stage"):
        import_trace(path, tmp_path / "runs")


def test_transfers_in_records_of_vllm_omni(tmp_path):
    """Sender and receiver write a record each; an id that has no stage is a drop."""
    hop = {"request_id": "req-0", "from_stage": 0, "to_stage": 1}
    sent = {"type": "transfer_stats", **hop, "size_bytes": 4096, "tx_time_ms": 1.5}
    got = {"type": "transfer_rx_stats", **hop, "rx_decode_time_ms": 0.5, "in_flight_time_ms": 1.0}
    lost = sent | {"request_id": "req-9"}
    text = "\n".join((omni("jsonl"), *map(json.dumps, (sent, got, lost)), json.dumps(sent)[:60]))
    run = imported(tmp_path, "a.stats.jsonl", text)
    assert between(run) == [("transfer 0->1", "run", 30_000_000, 3_000_000, 4096)]
    dropped = {d.detail.code.value: d.count for d in run.drops if d.kind is DropKind.DROPPED_EVENTS}
    assert dropped == {"damaged": 1, "no_stage_times": 1}


def test_stages_that_overlap_take_no_longer_than_their_request(tmp_path):
    """Stages that stream to each other take longer together than the request: it keeps its time,
    the last ends with it, and a drop says that nobody knows when each began."""
    line = "[OmniTiming] req=a total=10.00s engine=10.00s stages=[0:thinker=6.00s,1:talker=8.00s,"
    run = imported(tmp_path, "omni.log", f"{line}2:code2wav=1.00s]\n")
    begins = [ns // 10**9 for ns in run.calls["start_ns"]]
    assert begins == [0, 2, 9]
    assert run.spans.filter(pl.col("kind") == "pipeline")["duration_ns"].to_list() == [10**10]
    elapsed = analyze(run).submodules.select("submodule", "elapsed_ns").rows()
    assert {name: ns // 10**9 for name, ns in elapsed} == {"thinker": 6, "talker": 8, "code2wav": 1}
    assert [drop.detail.code.value for drop in run.drops] == [
        "without_operations",
        "stages_overlap",
    ]


ANYTHING = ",".join(("variant", "recipe", "hardware", "software", "model"))


@pytest.mark.parametrize(
    ("producer", "metric"),
    [
        ("sglang", "DecodingStage.call"),
        ("vllm_omni", "vae.call"),
        ("diffusers_csv", "sdxl-bf16.call"),
    ],
)
def test_many_runs_are_kept_and_compared(tmp_path, cli, producer, metric):
    """Stage times have a history as every run has: files of any name, and of several builds, are
    runs of one workload; a value that nobody recorded is no side of a comparison."""
    texts = {
        "sglang": lambda ms: (
            json.dumps(DUMP)
            .replace("200.0", str(ms))
            .replace("16831", str(ms))
            .replace("1500.0", "2000.0")
        ),
        "vllm_omni": lambda ms: f"[OmniTiming] req=a total=9.00s stages=[0:vae={ms / 1e3}s]\n",
        "diffusers_csv": lambda ms: TABLE.replace("0.074", str(ms / 1e3)).rpartition("sdxl-br")[0],
    }
    assert "sdxl-broken" in TABLE  # a row without a time is a drop, and such a run no history
    fleet, took = tmp_path / "fleet", (400, 410, 600)
    files = [tmp_path / f"of {ms}.txt" for ms in took]
    for number, (path, ms) in enumerate(zip(files, took, strict=True)):
        stamp = f"2026-01-1{number}T"
        path.write_text(texts[producer](ms).replace("2026-01-15T", stamp))
        os.utime(path, (1.8e9 + number, 1.8e9 + number))
    code, out, err = cli("fleet", "add", fleet, *files)
    assert (code, out) == (0, f"added 3 runs to {fleet}\n"), err
    given = ("--metric", metric, "--assume-same", ANYTHING)
    code, out, err = cli("fleet", "history", fleet, *given, "--json", "-")
    assert code == 0, err
    (history,) = json.loads(out)["histories"]
    assert [round(run["value"] / 1e6) for run in history["runs"]] == list(took)
    by = "model" if producer == "sglang" else "software"
    code, out, err = cli("fleet", "compare", fleet, "--by", by, *given)
    if producer == "sglang":
        assert code == 0, err
        assert "FLUX.1-dev" in out
        return
    assert code == 2
    assert "of which nobody recorded software: compare them by another field" in err


TABLE = (
    "scenario,model_cls,num_params_B,flops_G,time_plain_s,mem_plain_GB,time_compile_s,mem_compile_GB,"
    "fullgraph,mode\n"
    "sdxl-bf16,UNet2DConditionModel,2.57,5979.1,0.074 (0.079),5.05,0.054,5.24,True,default\n"
    "sdxl-offload,UNet2DConditionModel,2.57,5979.1,0.56,0.2,nan,nan,,\n"
    "sdxl-broken,UNet2DConditionModel,2.57,5979.1,,,,,,\n"
)


def test_the_table_of_diffusers(tmp_path):
    """A scenario is a request, its model plain and compiled two submodules of its name; a row
    without a time is counted."""
    run = imported(tmp_path, "flux.csv", TABLE)
    assert calls(run) == [
        ("sdxl-bf16", "run", -1, 74),
        ("sdxl-bf16.compiled", "run", -1, 54),
        ("sdxl-offload", "run", -1, 560),
    ]
    assert run.info.model == "UNet2DConditionModel"
    assert analyze(run).requests.sort("pipeline")["name"].to_list() == ["sdxl-bf16", "sdxl-offload"]
    assert [drop.count for drop in run.drops if drop.kind is DropKind.DROPPED_EVENTS] == [1]


RECORD_OF_FASTVIDEO = {  # as FastVideo's _build_result_record makes it
    "benchmark_id": "wan-t2v-1.3b",
    "model_short_name": "Wan2.1-T2V-1.3B",
    "device": "NVIDIA L40S",
    "avg_generation_time_s": 20.5,
    "individual_times_s": [20.4, 20.6],
    "max_peak_memory_mb": 9000.0,
    "text_encoder_time_s": 1.5,
    "dit_time_s": 16.25,
    "vae_decode_time_s": 2.0,
}
BENCHMARK = {  # as its benchmark writes with --output-json
    "args": {"model": "FastVideo/LTX2-Distilled-Diffusers", "prompt": "a secret prompt"},
    "results": [
        {
            "name": "cold",
            "wall_ms_median": 5000.0,
            "stage_means_ms": {
                "input_validation_stage": 1.0,
                "prompt_encoding_stage": 400.0,
                "denoising_stage": 3000.0,
                "ltx2_upsample_stage": 90.0,
                "ltx2_refine_denoising_stage": 800.0,
                "decoding_stage": 500.0,
            },
        },
        {"name": "compile_warm", "wall_ms_median": 0.0, "stage_means_ms": {}, "error": "no"},
    ],
}
GENAI = {  # under the names of openvino_genai.ImageGenerationPerfMetrics of 2026.4; steps are µs
    "generate_duration": 1000.0,
    "text_encoder_infer_duration": {"text_encoder": 40.0, "text_encoder_2": 60.0},
    "vae_encoder_infer_duration": 0.0,
    "vae_decoder_infer_duration": 100.0,
    "iteration_durations": [300_000.0, 250_000.0, 200_000.0],
    "transformer_inference_durations": [],
    "unet_inference_durations": [290_000.0, 240_000.0, 190_000.0],
}


def test_records_of_fastvideo(tmp_path):
    """Means of a model's parts are stages; of a benchmark each scenario with a time is a request,
    and what is between two loops belongs to denoising. The hardware is that of the GPU alone."""
    run = imported(tmp_path, "perf_wan.json", json.dumps(RECORD_OF_FASTVIDEO))
    assert calls(run) == [
        ("text_encoder", "encode", -1, 1500),
        ("transformer", "denoise", -1, 16250),
        ("vae", "decode", -1, 2000),
    ]
    assert analyze(run).accounting.end_to_end_ns == 20_500_000_000
    hardware = {name: one.hardware for name, one in run.info.devices.items()}
    assert hardware == {"cpu:0": "", "gpu:0": "NVIDIA L40S"}
    assert run.info.model == "Wan2.1-T2V-1.3B"


def test_a_benchmark_of_fastvideo(tmp_path):
    run = imported(tmp_path, "bench.json", json.dumps(BENCHMARK))
    assert calls(run) == [
        ("InputValidationStage", "encode", -1, 1),
        ("PromptEncodingStage", "encode", -1, 400),
        ("DenoisingStage", "denoise", -1, 3000),
        ("Ltx2UpsampleStage", "denoise", -1, 90),
        ("Ltx2RefineDenoisingStage", "denoise", -1, 800),
        ("DecodingStage", "decode", -1, 500),
    ]
    assert [drop.count for drop in run.drops if drop.kind is DropKind.DROPPED_EVENTS] == [1]
    files = (tmp_path / "traces").rglob("*")
    assert not any(b"secret prompt" in file.read_bytes() for file in files if file.is_file())


def test_stage_logging_of_fastvideo(tmp_path):
    """`logging_info.stages`, in seconds, under the classes of the stages."""
    stages = {
        "prompt_encoding_stage": {"execution_time": 0.5, "stage_class": "TextEncodingStage"},
        "denoising_stage": {"execution_time": 4, "timestamp": 1.7e9},
    }
    run = imported(tmp_path, "stages.json", json.dumps({"stages": stages}))
    assert calls(run) == [
        ("TextEncodingStage", "encode", -1, 500),
        ("DenoisingStage", "denoise", -1, 4000),
    ]


def test_metrics_of_openvino_genai(tmp_path):
    """Steps are iterations, in ms as well as in the object's µs; what took no time is no call."""
    in_ms = {
        key: [time / 1000 for time in value] if isinstance(value, list) else value
        for key, value in GENAI.items()
    }
    for number, document in enumerate((GENAI, in_ms)):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = imported(folder, "genai.json", json.dumps(document))
        assert calls(run) == [
            ("text_encoder", "encode", -1, 40),
            ("text_encoder_2", "encode", -1, 60),
            ("unet", "denoise", 0, 300),
            ("unet", "denoise", 1, 250),
            ("unet", "denoise", 2, 200),
            ("vae_decoder", "decode", -1, 100),
        ]
        analysis = analyze(run)
        assert analysis.accounting.end_to_end_ns == 1_000_000_000
        assert analysis.steps["elapsed_ns"].to_list() == [300e6, 250e6, 200e6]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fastvideo", json.dumps(RECORD_OF_FASTVIDEO)),
        ("fastvideo", json.dumps(BENCHMARK)),
        ("openvino", json.dumps(GENAI)),
        ("sglang", json.dumps(DUMP)),
        ("sglang", json.dumps(RECORD)),
        ("vllm_omni", omni("jsonl")),
        ("vllm_omni", omni("tables")),
        ("vllm_omni", TABLES),
        ("vllm_omni", TIMING),
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


@pytest.mark.parametrize("time", ["-1", "1e300", "9" * 400, "NaN", '"soon"', "true", "null"])
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
