"""Importing the traces of RBLN's profiler."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import profiler
from profiler.errors import InputError
from profiler.importers.rbln.trace import Arguments, parse_arguments
from profiler.run import Run
from profiler.trace import Recording, Warmup, read_manifest
from tests.examples import examples
from tests.importers.rbln.generator import (
    STEM,
    Command,
    Rows,
    Version,
    runtime_call,
    trace_bytes,
    write_sd3,
)
from tests.importers.rbln.importing import import_rbln
from tests.runs import told

Import = Callable[..., Run]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Import a folder or file and load the bundle; keywords are its options."""

    def run(path: Path, **options: object) -> Run:
        return profiler.load(import_rbln(path, tmp_path / "out", **options))

    return run


def one_file(folder: Path, *commands: Command, rows: Rows = "processes") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{STEM}_0.pb"
    path.write_bytes(trace_bytes([commands], rows=rows))
    return path


def drops(run: Run) -> dict[str, str]:
    return {drop.kind: told(drop) for drop in run.drops}


@pytest.mark.parametrize("version", ["0.11", "0.12"])
def test_an_sd3_image_is_labelled_and_complete(
    tmp_path: Path, imported: Import, version: Version
) -> None:
    """35 files and their aggregate become 35 labelled calls with every command once."""
    written = write_sd3(tmp_path / "traces", version=version)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=28)
    calls = run.calls.with_columns(pl.col("submodule", "stage", "branch", "device").cast(pl.String))
    assert calls["submodule"].to_list() == [file.submodule for file in written.files]
    assert calls["step"].to_list() == [-1] * 6 + list(range(28)) + [-1]
    assert calls["branch"].to_list()[:7] == ["prompt"] * 3 + ["negative_prompt"] * 3 + ["batched"]
    assert calls["device"].to_list()[:3] == ["rbln:0", "rbln:0", "rbln:1"]
    for index, file in enumerate(written.files):
        found = run.commands.filter(pl.col("call") == index)
        columns = ("track", "layer", "command_index", "duration_ns")
        expected = sorted((c.track, c.layer, c.index, c.duration) for c in file.commands)
        assert sorted(found.select(columns).iter_rows()) == expected
    assert set(drops(run)) == {"unaligned_clock"}


def test_times_within_a_device_are_kept(tmp_path: Path, imported: Import) -> None:
    """The first device's times are its own, and the other device's differ by one offset."""
    written = write_sd3(tmp_path / "traces", steps=2)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=2)
    apart = {}
    for index, file in enumerate(written.files):
        start = run.calls["start_ns"][index]
        apart.setdefault(file.commands[0].device, set()).add(start - file.commands[0].start)
    assert apart[0] == {0}
    assert len(apart[1]) == 1
    ends = run.calls["start_ns"] + run.calls["duration_ns"]
    assert (run.calls["start_ns"].to_numpy()[1:] >= ends.to_numpy()[:-1]).all()


def test_unrelated_clocks_are_labelled(tmp_path: Path, imported: Import) -> None:
    """Manifest, devices and drops say that the clocks are unaligned and how they were placed."""
    write_sd3(tmp_path / "traces", steps=1)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    assert run.info.devices["rbln:1"].aligned is False
    assert run.info.clocks.aligned is False
    placed = run.info.clocks.devices["rbln:1"]
    assert placed.placed_by == "call_order"
    assert placed.uncertainty_ns == 100_000  # the gaps that the generator leaves
    assert "nothing relates the clock of rbln:1" in drops(run)["unaligned_clock"]


def test_one_device_has_no_unaligned_clock(tmp_path: Path, imported: Import) -> None:
    """A run on one device compares with itself; only its clock is named as the device's own."""
    write_sd3(tmp_path / "traces", steps=1, second_device=0)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    assert run.drops == ()
    assert (run.info.clocks.clock, run.info.clocks.reference) == ("device", "rbln:0")


def test_bytes_and_cycles(tmp_path: Path, imported: Import) -> None:
    """Transfers count as read and written, cycles as a counter that adds up to the manifest's."""
    written = write_sd3(tmp_path / "traces", steps=1)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    commands = [command for file in written.files for command in file.commands]
    moved = sum(command.moved for command in commands if command.moved >= 0)
    assert run.commands["bytes_read"].sum() == run.commands["bytes_written"].sum() == moved
    assert run.commands["bytes_read"].null_count() == sum(c.moved < 0 for c in commands)
    cycles = sum(command.cycles for command in commands if command.cycles >= 0)
    assert run.counters["name"].unique().to_list() == ["Neural Engine Clusters comp_cycle"]
    assert run.counters.group_by("call").agg(pl.col("value").max())["value"].sum() == cycles
    assert sum(entry.comp_cycle or 0 for entry in run.info.submodules.values()) == cycles


def test_categories_and_kinds(tmp_path: Path, imported: Import) -> None:
    """Tracks have their category, and op types are layers without their numbers."""
    write_sd3(tmp_path / "traces", steps=1)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    found = dict(run.commands.select("track", "category").unique().iter_rows())
    assert found == {
        "Host": "host",
        "External HDMA": "dma",
        "Task DMA": "copy",
        "Neural DMA": "copy",
        "Neural Engine Clusters": "compute",
    }
    assert "fused(linear+gelu)" in run.commands["op_type"].unique().to_list()


def test_flows_with_ids_used_again(tmp_path: Path, imported: Import) -> None:
    """An id that ended begins anew: the inputs' flow and the outputs' flow are two flows."""
    run = imported(one_file(tmp_path / "in", *runtime_call(0, 1_000, ["linear_1"])))
    rows = run.commands.with_row_index().select("index", "track", "layer")
    named = {index: (track, layer) for index, track, layer in rows.iter_rows()}
    assert sorted((named[s], named[t]) for s, t in run.flows.iter_rows()) == [
        (("External HDMA", "input"), ("Task DMA", "input")),
        (("Task DMA", "output"), ("External HDMA", "output")),
    ]


def test_the_aggregate_is_not_counted_again(tmp_path: Path, imported: Import) -> None:
    """With and without the aggregate beside them, the files give the same commands."""
    written = write_sd3(tmp_path / "traces", steps=1)
    both = imported(tmp_path / "traces")
    written.aggregate.unlink()
    alone = imported(tmp_path / "traces")
    assert both.commands.equals(alone.commands)


def test_an_aggregate_that_holds_more_is_reported(tmp_path: Path, imported: Import) -> None:
    """Where a file is missing behind the last, the aggregate shows it."""
    written = write_sd3(tmp_path / "traces", steps=1)
    lost = written.files[-1]
    written.path(lost.number).unlink()
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    mismatches = [drop for drop in run.drops if drop.kind == "aggregate_mismatch"]
    assert [(drop.count, drop.unit) for drop in mismatches] == [
        (len(lost.commands), "slices"),
        (2, "flows"),
    ]


def test_a_damaged_aggregate_is_reported(tmp_path: Path, imported: Import) -> None:
    """An aggregate that cannot be read does not stop the import of its files."""
    written = write_sd3(tmp_path / "traces", steps=1)
    written.aggregate.write_bytes(b"no trace")
    assert "aggregate_mismatch" in drops(imported(tmp_path / "traces"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"skip": 1}, "give --pipeline sd3 --steps N"),
        ({"steps": 3}, "give --pipeline sd3 --steps N"),
        ({"pipeline": "sd3", "steps": 3}, "files: 9, calls of sd3 (steps: 3): 10"),
        ({"pipeline": "sd3", "steps": 3}, "what would fit: --steps 2"),
        ({"pipeline": "sd3", "steps": 1}, "--skip 1, --steps 2"),
        ({"pipeline": "sd3", "steps": 2, "skip": 1}, "files: 8, skipped before them: 1"),
        ({"pipeline": "flux", "steps": 2}, "--pipeline sd3"),
        ({"pipeline": "sdxl", "steps": 2}, "files: 9, calls of sdxl (steps: 2): 7"),
    ],
)
def test_counts_that_do_not_fit_label_nothing(
    tmp_path: Path, imported: Import, options: dict[str, object], said: str
) -> None:
    """One sentence says what was found, what was expected and what would fit."""
    write_sd3(tmp_path / "traces", steps=2)
    run = imported(tmp_path / "traces", **options)
    assert said in drops(run)["unlabelled_call"]
    assert set(run.calls["submodule"]) == {"unlabelled"}
    assert set(run.calls["step"]) == {-1}
    assert run.calls["branch"].null_count() == len(run.calls)
    assert run.info.recording.labelled is False
    assert run.spans["kind"].to_list() == ["pipeline"]
    assert run.info.pipeline == ""


def test_a_missing_number_labels_nothing(tmp_path: Path, imported: Import) -> None:
    """A warm-up call too many and a file too few give the right count, and no labels."""
    written = write_sd3(tmp_path / "traces", steps=2, warmup=1, aggregate=False)
    written.path(4).unlink()
    run = imported(tmp_path / "traces", pipeline="sd3", steps=2)
    assert len(run.calls) == 9
    assert "missing between them: 4" in drops(run)["unlabelled_call"]


def test_numbers_may_be_missing_where_the_description_says_so(
    tmp_path: Path, imported: Import
) -> None:
    """Submodules that were not profiled leave gaps that their description allows."""
    written = write_sd3(tmp_path / "traces", steps=2, aggregate=False)
    for number in (2, 5):
        written.path(number).unlink()
    description = tmp_path / "partly.yaml"
    description.write_text(
        "allow_gaps: true\nencode: [text_encoder, text_encoder_2, text_encoder, text_encoder_2]\n"
        "denoise: [transformer]\ndecode: [vae]\n"
    )
    run = imported(tmp_path / "traces", pipeline=description, steps=2)
    assert run.calls["submodule"].to_list()[4:] == ["transformer", "transformer", "vae"]


def test_warm_up_calls_are_left_out(tmp_path: Path, imported: Import) -> None:
    """Warm-up consumes numbers; what is skipped is no call, and the manifest says how many."""
    write_sd3(tmp_path / "traces", steps=2, warmup=3, first_number=11)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=2, skip=3)
    assert run.calls["submodule"].to_list()[0] == "text_encoder"
    assert run.info.warmup == Warmup(calls=3)
    assert set(drops(run)) == {"unaligned_clock"}


def test_skipping_everything_is_refused(tmp_path: Path, imported: Import) -> None:
    """A run without calls is none."""
    write_sd3(tmp_path / "traces", steps=1)
    with pytest.raises(InputError, match="--skip 8 leaves none of the 8 files"):
        imported(tmp_path / "traces", skip=8)


def test_labels_that_the_layers_speak_against(tmp_path: Path, imported: Import) -> None:
    """Counts that fit by chance are told by calls of one submodule that share no layer."""
    write_sd3(tmp_path / "traces", steps=2)
    run = imported(tmp_path / "traces", pipeline="flux", steps=6)
    assert set(run.calls["submodule"]) == {"text_encoder", "text_encoder_2", "transformer", "vae"}
    assert "check --pipeline" in drops(run)["doubtful_label"]


def test_spans_tile_the_pipeline(tmp_path: Path, imported: Import) -> None:
    """Pipeline, three stages without gaps, and one span a step are derived from the calls."""
    write_sd3(tmp_path / "traces", steps=4)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=4)
    stages = run.spans.filter(pl.col("kind") == "stage")
    assert stages["name"].to_list() == ["encode", "denoise", "decode"]
    ends = stages["start_ns"] + stages["duration_ns"]
    assert ends.to_list()[:-1] == stages["start_ns"].to_list()[1:]
    pipeline = run.spans.filter(pl.col("kind") == "pipeline")
    assert pipeline["duration_ns"].sum() == stages["duration_ns"].sum()
    steps = run.spans.filter(pl.col("kind") == "step")
    assert steps["step"].to_list() == [0, 1, 2, 3]
    assert steps["duration_ns"].sum() == stages["duration_ns"][1]


@pytest.mark.parametrize("rows", ["processes", "unnamed", "threads"])
def test_every_layout_of_rows(tmp_path: Path, imported: Import, rows: Rows) -> None:
    """Devices are told apart by process names or by pids, and without both by nothing."""
    write_sd3(tmp_path / "traces", steps=1, rows=rows, second_device=0 if rows == "threads" else 1)
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    devices = {"rbln:0"} if rows == "threads" else {"rbln:0", "rbln:1"}
    assert set(run.calls["device"]) == devices


def test_interned_names(tmp_path: Path, imported: Import) -> None:
    """Names in interned data give what names in the events give."""
    commands = runtime_call(0, 1_000, ["linear_1", "fused(conv_2+relu_3)"])
    plain = imported(one_file(tmp_path / "plain", *commands))
    path = one_file(tmp_path / "interned")
    path.write_bytes(trace_bytes([commands], interned=True))
    assert imported(path).commands.equals(plain.commands)


def test_devices_of_processes_without_a_name(tmp_path: Path, imported: Import) -> None:
    """Threads of two pids are on two devices even where no row names them."""
    commands = [*runtime_call(0, 1_000, ["linear_1"]), *runtime_call(1, 5_000, ["linear_1"])]
    path = one_file(tmp_path / "in", *commands, rows="pids")
    run = imported(path)
    assert set(run.commands["device"]) == {"rbln:0", "rbln:1"}
    assert run.info.clocks.devices["rbln:1"].placed_by == "shared_call"


@given(st.data())
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_end_in_a_bundle_or_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever bytes are changed, cut or put in, nothing but an InputError is raised."""
    folder = tmp_path / "traces"
    folder.mkdir(exist_ok=True)
    whole = trace_bytes([runtime_call(0, 1_000, ["linear_1"])])
    for number in range(2):
        begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
        middle = data.draw(st.binary(max_size=12))
        (folder / f"{STEM}_{number}.pb").write_bytes(whole[:begin] + middle + whole[end:])
    with suppress(InputError):
        profiler.load(import_rbln(folder, tmp_path / "out"))


def test_chiplets_are_tracks_of_their_device(tmp_path: Path, imported: Import) -> None:
    """A split operation has equal names in four chiplet groups, which stay apart."""
    split = [
        Command(0, "Neural Engine Clusters", "linear_1", 0, 1_000, 500, group=f"Chiplet {n}")
        for n in range(4)
    ]
    run = imported(
        one_file(
            tmp_path / "in",
            Command(0, "Device Workload", "", 0, 900, 800, name="decoder"),
            *split,
            rows="chiplets",
        )
    )
    assert run.commands["track"].to_list() == [
        "Device Workload",
        *(f"Chiplet {n} / Neural Engine Clusters" for n in range(4)),
    ]
    assert set(run.commands["device"]) == {"rbln:0"}
    assert run.commands["command_index"].to_list() == [0] * 5
    assert run.commands["layer"].to_list()[0] == "decoder"


def test_unknown_tracks_and_names_are_kept(tmp_path: Path, imported: Import) -> None:
    """A track that nobody documented is one of category other, names that fit nothing are whole."""
    plain = Command(0, "uDMA", "", 0, 1_000, 500, name="prefetch weights")
    run = imported(one_file(tmp_path / "in", plain, replace(plain, start=2_000)))
    assert run.commands["track"].to_list() == ["uDMA", "uDMA"]
    assert set(run.commands["category"]) == {"other"}
    assert run.commands["layer"].to_list() == ["prefetch weights"] * 2
    assert run.commands["command_index"].to_list() == [0, 1]
    assert run.info.recording.names_kept_whole == 2


def test_arguments_that_cannot_be_read_are_reported(tmp_path: Path, imported: Import) -> None:
    """Slice Arguments of another form leave bytes unknown and are counted."""
    odd = Command(0, "Task DMA", "linear_1", 0, 1_000, 500, arguments="{transfer: 12}")
    run = imported(one_file(tmp_path / "in", odd))
    assert run.commands["bytes_read"].null_count() == 1
    assert "Slice Arguments" in drops(run)["dropped_events"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Arguments()),
        ('{"transfer": [], "comp_cycle": []}', Arguments()),
        ('{"transfer": ["a:64Byte", "b:c:36Byte"]}', Arguments(100, 100)),
        ('{"transfer": ["read x:64Byte", "write y:36Byte"]}', Arguments(64, 36)),
        ('{"transfer": ["DRAM->SHM :8Byte"], "comp_cycle": ["7", "5"]}', Arguments(8, 8, 12)),
        ('{"comp_cycle": [7], "other": {"a": [1]}}', Arguments(cycles=7)),
        ('{"transfer": ["64"]}', None),
        ('{"transfer": "a:64Byte"}', None),
        ('{"comp_cycle": ["x"]}', None),
        ('{"comp_cycle": ["-1"]}', None),
        ('{"comp_cycle": ["' + "9" * 5_000 + '"]}', None),
        ('{"transfer": ["a:' + "9" * 18 + 'Byte"]}', None),
        ("[" * 10_000, None),
        ("", None),
        ("null", None),
    ],
)
def test_slice_arguments(text: str, expected: Arguments | None) -> None:
    """The documented JSON is summed up, and what is not of its form is nothing."""
    assert parse_arguments(text) == expected


def test_a_slice_that_never_ends(tmp_path: Path, imported: Import) -> None:
    """An unclosed slice is kept and reported."""
    open_slice = Command(0, "Task DMA", "linear_1", 0, 1_000, -1)
    run = imported(one_file(tmp_path / "in", open_slice, Command(0, "Host", "x", 0, 900, 50)))
    assert len(run.commands) == 2
    assert "unclosed_slice" in drops(run)


def test_a_cut_file_is_read_up_to_the_cut(tmp_path: Path, imported: Import) -> None:
    """What stands before the cut is imported, and the drop names the byte."""
    written = write_sd3(tmp_path / "traces", steps=1, aggregate=False)
    path = written.path(3)
    path.write_bytes(path.read_bytes()[:-500])
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    assert "damaged at byte" in drops(run)["truncated_file"]
    assert 0 < len(run.commands.filter(pl.col("call") == 3)) < len(written.files[3].commands)


@pytest.mark.parametrize("position", [0, 4])
def test_a_file_without_a_trace_keeps_its_place(
    tmp_path: Path, imported: Import, position: int
) -> None:
    """An empty file is a call of which nothing is known, and all others keep their labels."""
    written = write_sd3(tmp_path / "traces", steps=1, aggregate=False)
    written.path(position).write_bytes(b"")
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    assert run.calls["ops_traced"].to_list().count(False) == 1
    assert run.calls["duration_ns"][position] == 0
    assert run.calls["submodule"].to_list() == [file.submodule for file in written.files]
    assert "untraced_call" in drops(run)


def test_nothing_to_import(tmp_path: Path, imported: Import) -> None:
    """Files without a single command, and files that are no trace, are refused."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(2):
        (folder / f"{STEM}_{number}.pb").write_bytes(b"")
    with pytest.raises(InputError, match=r"no file in .* holds a command"):
        imported(folder)
    with pytest.raises(InputError, match="is empty: record or copy it again"):
        imported(folder / f"{STEM}_0.pb")
    assert not (tmp_path / "out").exists()


def test_clocks_that_start_anew(tmp_path: Path, imported: Import) -> None:
    """Files that all begin at the same time are laid end to end, and it is said."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(3):
        data = trace_bytes([runtime_call(0, 1_000, ["linear_1"])])
        (folder / f"{STEM}_{number}.pb").write_bytes(data)
    run = imported(folder)
    ends = (run.calls["start_ns"] + run.calls["duration_ns"]).to_list()
    assert run.calls["start_ns"].to_list() == [0, *ends[:-1]]
    assert "restarts in each file" in drops(run)["unaligned_clock"]


def test_an_aggregate_alone_is_one_call(tmp_path: Path, imported: Import) -> None:
    """Up to 0.11 one file with everything is imported whole, and cannot be labelled."""
    written = write_sd3(tmp_path / "traces", steps=1, version="0.11")
    for file in written.files:
        written.path(file.number).unlink()
    run = imported(tmp_path / "traces", pipeline="sd3", steps=1)
    assert len(run.calls) == 1
    assert len(run.commands) == sum(len(file.commands) for file in written.files)
    assert "perhaps an aggregate alone" in drops(run)["unlabelled_call"]


def test_the_manifest(tmp_path: Path) -> None:
    """The manifest names producer, source, description and when it was recorded."""
    write_sd3(tmp_path / "traces", steps=1)
    bundle = import_rbln(tmp_path / "traces", tmp_path / "out", "mine", pipeline="sd3", steps=1)
    manifest = read_manifest(bundle / "manifest.json")
    assert (bundle.name, manifest.info.producer, manifest.info.pipeline) == ("mine", "rbln", "sd3")
    assert manifest.info.recording == Recording(
        source="traces",
        files=8,
        recorded="2026-09-02 01:29:06",
        described_as="sd3",
        steps=1,
        labelled=True,
    )
    assert json.loads((bundle / "manifest.json").read_text())["drops"]


def test_a_run_id_that_is_none(tmp_path: Path) -> None:
    """A name that would leave the folder is refused before anything is read."""
    with pytest.raises(InputError, match="cannot name a run"):
        import_rbln(one_file(tmp_path / "in", Command(0, "Host", "x", 0, 1, 1)), tmp_path, "../x")
