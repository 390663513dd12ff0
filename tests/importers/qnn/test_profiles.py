"""Profiles of QNN: the corpus by its totals, both forms of the CSV, broken files."""

from __future__ import annotations

import json

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.compare.operations import TimedLayer, node_groups
from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.importers.qnn import op_type as op_type_of
from profiler.tools.sources import load
from profiler.trace import DropKind
from tests.corpus import CORPUS, needs_corpus
from tests.importers.broken import read_or_refused
from tests.runs import told

CSV, QHAS = CORPUS / "qnn/winml_optrace_resnet50.csv", CORPUS / "qnn/winml_qhas_resnet50.json"
COLUMNS = (
    "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier"
)
LOADING = (
    "0,FINALIZE,500,US,BACKEND,ROOT,QNN (finalize) time",
    "0,UNKNOWN,300,US,BACKEND,SUB-EVENT,Graph Optimizations",
)


def execution(cycles, accelerator=100, whole=900, stamp=0):
    """An execution of two nodes of the model and QNN's own input, as ONNX Runtime writes it."""
    names = ("Input OpId_2", "/a/Conv_token_1_2:OpId_24", "/a/Add_3:OpId_30")
    nodes = [
        f"{stamp},NODE,{n},CYCLES,BACKEND,SUB-EVENT,{name} (cycles)"
        for n, name in zip(cycles, names, strict=True)
    ]
    return (
        f"{stamp},BACKEND,4,COUNT,BACKEND,ROOT,Number of HVX threads used",
        f"{stamp},BACKEND,700,US,BACKEND,ROOT,RPC (execute) time",
        f"{stamp},BACKEND,{sum(cycles)},CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)",
        *nodes,
        f"{stamp},BACKEND,{accelerator},US,BACKEND,ROOT,Accelerator (execute) time",
        f"{stamp},UNKNOWN,UNKNOWN,OBJECT,BACKEND,ROOT,Unknown event type",
        f"{stamp},EXECUTE,{whole},US,BACKEND,ROOT,QNN (execute) time",
    )


def viewed(stamp, graph, whole):
    """An execution as qnn-profile-viewer writes it, with another model's names."""
    return (
        f"{stamp},EXECUTE,{whole},US,NETRUN,ROOT,Graph 0: {graph}",
        f"{stamp},EXECUTE,4,COUNT,BACKEND,ROOT,Number of HVX threads used",
        f"{stamp},EXECUTE,{whole - 100},US,BACKEND,ROOT,RPC (execute) time",
        f"{stamp},EXECUTE,120,US,BACKEND,ROOT,Time for HVX + HMX power on and acquire",
        f"{stamp},EXECUTE,60,CYCLES,BACKEND,SUB-EVENT,/a/Conv_7:OpId_9 (cycles)",
        f"{stamp},EXECUTE,40,CYCLES,BACKEND,SUB-EVENT,/a/Mul:OpId_11 (cycles)",
        f"{stamp},EXECUTE,200,US,BACKEND,ROOT,Accelerator (execute) time",
        f"{stamp},EXECUTE,50,US,BACKEND,ROOT,Accelerator (execute excluding wait) time",
        f"{stamp},EXECUTE,{whole - 20},US,BACKEND,ROOT,QNN (execute) time",
    )


VIEWER = (
    "input log file location, /home/alice/qnn-profiling-data_0.log",
    "qnn-profile-viewer version, v2.47.0.260601114230",
    "qnn-net-run version, v2.47.0.260601114230",
    "Backend version, v2.47.0.260601114230",
    COLUMNS.replace(",", ", "),
)
AROUND = (  # before all executions in the file, whenever it was
    "3000,INIT,400,US,NETRUN,ROOT,null",
    "3500,COMPOSE GRAPHS,450,US,NETRUN,ROOT,null",
    "4000,FINALIZE,480,US,NETRUN,ROOT,Graph 0: vae_decoder",
    "4000,FINALIZE,90,US,BACKEND,ROOT,RPC (finalize) time",
    "4000,FINALIZE,470,US,BACKEND,ROOT,QNN (finalize) time",
    "4000,FINALIZE,300,US,BACKEND,SUB-EVENT,Graph Optimizations",
    "9900,DE-INIT,300,US,NETRUN,ROOT,null",
    "9900,DE-INIT,290,US,BACKEND,ROOT,QNN (deinit) time",
)
AFTER = ("9950,EXECUTE IPS,180.141235,INF/SEC,NETRUN,ROOT,null",)


def imported(folder, *lines, name="unet.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load(import_trace([path], folder / "traces"))


def nodes(run, *columns):
    own = run.commands.filter(pl.col("device").cast(pl.String) == "qnn:0")
    texts = ("layer", "op_type")
    return own.select(
        pl.col(name).cast(pl.String) if name in texts else pl.col(name) for name in columns
    ).rows()


@needs_corpus
def test_the_totals_of_the_corpus(tmp_path):
    """Executions, nodes, µs of the accelerator and of the host, cycles of nodes: those of
    `truth.json`; cycles and µs are kept apart."""
    truth = json.loads((CORPUS / "truth.json").read_text())["qnn/winml_optrace_resnet50.csv"]
    run = load(import_trace([CSV], tmp_path))
    told = truth["execute_us"]
    assert [d // 1000 for d in run.calls["duration_ns"]] == told["QNN (execute) time"]
    waits = pl.col("layer").cast(pl.String) == "wait"
    assert len(nodes(run, "layer")) - 5 == truth["count"] == 5 * truth["nodes"]
    own = run.commands.filter(pl.col("device").cast(pl.String) == "qnn:0")
    by_call = own.group_by("call", maintain_order=True).agg(pl.col("duration_ns").sum() // 1000)
    assert by_call["duration_ns"].to_list() == told["Accelerator (execute) time"]
    busy = dict(analyze(run).devices.select("device", "busy_ns").iter_rows())["qnn:0"]
    whole_ms = truth["busy_ms"]["npu:0 (sum of Accelerator (execute) time)"]
    assert own["duration_ns"].sum() / 1e6 == pytest.approx(whole_ms)
    assert busy // 1000 == sum(told["Accelerator (execute excluding wait) time"])
    names = run.counters["name"].cast(pl.String)
    values = run.counters.filter(names == "cycles of nodes")["value"].to_list()
    assert sum(values) == sum(truth["node_cycles_per_execution"])
    whole = run.counters.filter(names == "Accelerator (execute) time (cycles)")["value"].to_list()
    assert whole == told["Accelerator (execute) time (cycles)"]
    top = own.group_by(pl.col("layer").cast(pl.String)).agg(pl.col("duration_ns").sum())
    first = top.filter(~waits).sort("duration_ns", descending=True)["layer"].to_list()[:3]
    assert first[0] == "/resnet/embedder/embedder/convolution/Conv"
    assert sum(own["duration_ns"] == 0) == truth["zero_cycle_rows"]


@needs_corpus
def test_a_summary_gives_its_types_and_bytes(tmp_path):
    """Beside the CSV: op types and bytes of DRAM of the nodes that it lists; alone: the units."""
    truth = json.loads((CORPUS / "truth.json").read_text())["qnn/winml_qhas_resnet50.json"]
    both = load(import_trace([CSV, QHAS], tmp_path / "both"))
    found = {row[0]: row[1:] for row in nodes(both, "layer", "op_type", "bytes_read")}
    assert found["/resnet/embedder/embedder/convolution/Conv"] == ("Conv2d", 18_432)
    listed = [row for row in nodes(both, "op_type", "bytes_read") if row[1] is not None]
    assert len(listed) == 5 * truth["listed"]["qnn_op_instances_nodes"]
    alone = load(import_trace([QHAS], tmp_path / "alone"))
    busy = dict(analyze(alone).devices.select("device", "busy_ns").iter_rows())["qnn:0"]
    assert busy / 1000 == truth["time_us"]
    tracks = alone.commands["track"].cast(pl.String).to_list()
    assert sorted(tracks) == sorted(f"{kind} {tid}" for kind, tid, *_ in truth["tracks"])
    used = alone.counters.filter(pl.col("name").cast(pl.String) == "HMX 256 cycles used")
    assert used["value"].to_list() == [truth["tracks"][0][2]]
    (drop,) = alone.drops
    assert [(one.values["name"], one.values["share"]) for one in drop.detail.values["used"]] == [
        (f"{kind} {tid}", used / truth["timeline_cycles"]) for kind, tid, used, _ in truth["tracks"]
    ]
    assert "worked for HMX 256 83 %, HVX 512 42 %" in told(drop).replace("\N{NO-BREAK SPACE}", " ")
    dram = alone.counters.filter(pl.col("name").cast(pl.String) == "DRAM read")
    assert dram["value"].to_list() == [truth["dram_read"]]


def test_executions_are_calls_with_shares_of_cycles(tmp_path):
    """The host's time is the call, the accelerator's is shared by cycles; loading comes before."""
    run = imported(tmp_path, COLUMNS, *LOADING, *execution((10, 60, 30)), *execution((0, 50, 50)))
    calls = run.calls.select("start_ns", "duration_ns", "iteration").rows()
    assert calls == [(500_000, 900_000, 0), (1_400_000, 900_000, 1)]
    assert nodes(run, "layer", "op_type", "duration_ns") == [
        ("Input", "Input", 10_000),
        ("/a/Conv", "Conv", 60_000),
        ("/a/Add", "Add", 30_000),
        ("Input", "Input", 0),
        ("/a/Conv", "Conv", 50_000),
        ("/a/Add", "Add", 50_000),
    ]
    reasons = [drop.detail.code.value for drop in run.drops]
    assert reasons == ["shares_of_cycles", "executions_in_order"]
    assert set(run.info.capabilities) == {"averages", "cycles"}


def test_the_viewers_form(tmp_path):
    """Its messages have an end in µs, so calls have begins; the graph names the submodule; names of
    the model keep their numbers where QNN appended none. Loading and unloading, which precede all
    executions in the file, are no executions, and lie where they were; paths stay in the file."""
    executions = (*viewed(5_000, "vae_decoder", 900), *viewed(9_000, "vae_decoder", 800))
    run = imported(tmp_path, *VIEWER, *AROUND, *executions, *AFTER)
    calls = run.calls.select(pl.col("submodule").cast(pl.String), "start_ns", "duration_ns").rows()
    began = 2_600  # µs, of INIT
    assert calls == [
        ("vae_decoder", (5_000 - 880 - began) * 1000, 880_000),
        ("vae_decoder", (9_000 - 780 - began) * 1000, 780_000),
    ]
    assert [row[0] for row in nodes(run, "layer")] == ["wait", "/a/Conv_7", "/a/Mul"] * 2
    assert [drop.detail.code.value for drop in run.drops] == ["shares_of_cycles"]
    track = pl.col("track").cast(pl.String)
    around = run.commands.filter(track == "QNN loading").sort("start_ns")
    assert around.select(pl.col("layer").cast(pl.String), "start_ns", "duration_ns").rows() == [
        ("INIT", 0, 400_000),
        ("COMPOSE GRAPHS", 450_000, 450_000),
        ("FINALIZE", 920_000, 480_000),
        ("DE-INIT", 7_000_000, 300_000),
    ]
    assert run.info.versions["qnn"] == "2.47.0.260601114230"
    files = [file for file in (tmp_path / "traces").rglob("*") if file.is_file()]
    assert not any(b"alice" in file.read_bytes() for file in files)


def test_the_accelerator_waits_before_it_computes(tmp_path):
    """Nodes share the time without waiting; the rest of the accelerator's time is no use of it."""
    run = imported(tmp_path, *VIEWER, *viewed(5_000, "vae_decoder", 900))
    assert nodes(run, "layer", "duration_ns") == [
        ("wait", 150_000),
        ("/a/Conv_7", 30_000),
        ("/a/Mul", 20_000),
    ]
    busy = dict(analyze(run).devices.select("device", "busy_ns").iter_rows())["qnn:0"]
    assert busy == 50_000


def test_models_that_were_appended_to_one_file_are_told_apart(tmp_path):
    """ONNX Runtime appends every session to its file: another set of nodes is another model."""
    other = [row.replace("/a/", "/b/") for row in execution((1, 2, 3))]
    rows = (*execution((10, 60, 30)), *LOADING, *other, *execution((1, 2, 3)))
    run = imported(tmp_path, COLUMNS, *LOADING, *rows)
    assert run.calls["submodule"].cast(pl.String).to_list() == ["unet", "unet.2", "unet"]


@pytest.mark.parametrize(
    ("name", "op_type"),
    [
        ("_MatMul_2_pre_reshape", "Reshape"),
        ("hidden_states_nfc", "Transpose"),
        ("_Unsqueeze_7_output_0_cast_to_bool", "Cast"),
        ("rms_norm__Mul_14_output_0", "RmsNorm"),
        ("_MatMul_3", "MatMul"),
        ("/a/convolution/Conv", "Conv"),
        ("pixel_values_QuantizeLinear", "QuantizeLinear"),
    ],
)
def test_types_of_what_the_converter_calls_nodes(name, op_type):
    """By the model's name, and of what the converter puts in by what it appends."""
    assert op_type_of(name) == op_type


def test_a_profile_without_nodes_is_one_command_an_execution(tmp_path):
    """What profiling_level=basic may leave."""
    rows = [row for row in execution((1, 2, 3)) if ",NODE," not in row]
    run = imported(tmp_path, COLUMNS, *rows)
    assert nodes(run, "layer", "op_type", "duration_ns") == [("unet", "Execution", 100_000)]


def test_a_cut_file_is_read_as_far_as_it_is_whole(tmp_path):
    """At whatever byte it ends: a drop, or one sentence."""
    text = "\n".join((COLUMNS, *LOADING, *execution((10, 60, 30)), *execution((0, 50, 50))))
    read = 0
    for length in range(len(COLUMNS), len(text) - 70, 61):
        name = f"{length}.csv"
        run = read_or_refused(
            imported, tmp_path, text[:length], name=name, sentence="holds no execution"
        )
        if run is None:
            continue
        read += 1
        whole = text[:length].count("QNN (execute) time")
        cut = DropKind.TRUNCATED_FILE in {drop.kind for drop in run.drops}
        assert cut or len(run.calls) == whole
    assert read > 10


def test_names_of_the_converter_meet_those_of_the_model():
    """A comparison with a profile of ONNX Runtime is by node, whatever Qualcomm's tools call it."""
    sides = [[TimedLayer("_a_MatMul_3", 2.0)], [TimedLayer("/a/MatMul_3", 3.0)]]
    (group,) = node_groups(*sides, ("qnn", "onnxruntime"))
    assert (group.base, group.new) == tuple(sides)


@pytest.mark.parametrize(
    "row",
    [
        "soon,NODE,5,CYCLES,BACKEND,SUB-EVENT,/a/Conv:OpId_1 (cycles)",
        "0,NODE,-5,CYCLES,BACKEND,SUB-EVENT,/a/Conv:OpId_1 (cycles)",
        "0,NODE,1e300,CYCLES,BACKEND,SUB-EVENT,/a/Conv:OpId_1 (cycles)",
        "0,NODE,nan,US,BACKEND,ROOT,RPC (execute) time",
        "0,NODE",
        "0,NODE,5,CYCLES,BACKEND,SUB-EVENT," + "x" * 200_000,
    ],
)
def test_a_damaged_row_is_counted(tmp_path, row):
    """And the others are read."""
    first, *rest = execution((10, 60, 30))
    run = imported(tmp_path, COLUMNS, first, row, *rest)
    assert len(nodes(run, "layer")) == 3
    assert [d.count for d in run.drops if d.kind is DropKind.DROPPED_EVENTS] == [1]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ('{"header": {"artifact_type": "QHAS"}, "data": {}}', "holds no time of an execution"),
        ('{"header": {"artifact_type": "QHAS"}, "data": ', "is damaged or was cut"),
        ('{"header": {"artifact_type": "QHAS"}, "data": {"htp_overall_summary": 3}}', "no time"),
    ],
)
def test_a_summary_without_a_time_is_refused(tmp_path, data, sentence):
    """One sentence."""
    path = tmp_path / "qhas.json"
    path.write_text(data)
    with pytest.raises(InputError, match=sentence):
        import_trace([path], tmp_path / "traces")


def test_profiles_of_several_models_are_refused_together(tmp_path):
    """Each may be imported alone."""
    paths = []
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("\n".join((COLUMNS, *execution((1, 2, 3)))))
        paths.append(tmp_path / name)
    with pytest.raises(InputError, match="are of several models"):
        import_trace(paths, tmp_path / "traces")
    assert recognised(paths[:1]).name == "qnn"


def test_rows_of_a_backend_that_tells_no_times(tmp_path):
    """As ONNX Runtime's source writes events without extended data: no time, no name of an
    execution, which comes before its nodes; microseconds of nodes are their own times."""
    head = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level"
    lines = [f"{head},Event Identifier", "UNKNOWN,FINALIZE,9000,US,BACKEND,ROOT,NULL"]
    for whole, convolution, activation in ((3100, 600, 1000), (2100, 500, 900)):
        lines += [
            f"UNKNOWN,EXECUTE,{whole},US,BACKEND,ROOT,NULL",
            f"UNKNOWN,NODE,{convolution},US,BACKEND,SUB-EVENT,conv1",
            f"UNKNOWN,NODE,{activation},US,BACKEND,SUB-EVENT,relu1 (us)",
        ]
    run = imported(tmp_path, *lines)
    assert run.calls["duration_ns"].to_list() == [3_100_000, 2_100_000]
    ran = run.commands.filter(pl.col("device").cast(pl.String) == "qnn:0")
    names = pl.col("layer").cast(pl.String)
    assert ran.select("call", names, "duration_ns").rows() == [
        (0, "conv1", 600_000),
        (0, "relu1", 1_000_000),
        (1, "conv1", 500_000),
        (1, "relu1", 900_000),
    ]
    assert DropKind.DROPPED_EVENTS not in {drop.kind for drop in run.drops}
