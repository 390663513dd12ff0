"""An aggregate of version 0.12 alone: divided by runtime instance and workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import profiler
from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.run import Run
from tests.examples import examples
from tests.importers.rbln.generator import (
    STEM,
    Command,
    WrittenRun,
    runtime_call,
    trace_bytes,
    write_aggregate,
    write_sd3,
)
from tests.importers.rbln.importing import import_rbln
from tests.runs import told

Import = Callable[..., Run]
NAMES = ["text_encoder", "text_encoder_2", "text_encoder_3"] * 2 + ["transformer"] * 2 + ["vae"]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    def run(path: Path, **options: object) -> Run:
        return profiler.load(import_rbln(path, tmp_path / "out", **options))

    return run


def aggregate(folder: Path, **options: object) -> WrittenRun:
    """The aggregate of an SD3 image with two steps, alone."""
    per_instance = bool(options.pop("per_instance", False))
    written = write_sd3(folder, steps=2, **options)  # type: ignore[arg-type]
    for file in written.files:
        written.path(file.number).unlink()
    write_aggregate(written, per_instance=per_instance)
    return written


def one_file(folder: Path, calls: Sequence[Sequence[Command]], **options: object) -> Path:
    folder.mkdir()
    path = folder / f"{STEM}.pb"
    path.write_bytes(trace_bytes(calls, **options))  # type: ignore[arg-type]
    return path


def commands_of(run: Run, call: int) -> list[tuple[object, ...]]:
    columns = ("track", "layer", "command_index", "duration_ns")
    return sorted(run.commands.filter(pl.col("call") == call).select(columns).iter_rows())


def drop(run: Run, kind: str) -> str:
    (found,) = [told(found) for found in run.drops if found.kind == kind]
    return found


@pytest.mark.parametrize("per_instance", [False, True])
def test_instance_and_workload_are_kept(
    tmp_path: Path, imported: Import, per_instance: bool
) -> None:
    """Nine calls of five models, each with its own commands, and both numbers in the manifest."""
    written = aggregate(tmp_path / "in", second_device=0, per_instance=per_instance)
    run = imported(tmp_path / "in", pipeline="sdxl", steps=2)  # which makes seven calls
    assert run.calls["submodule"].to_list() == [
        f"instance_{n}" for n in (0, 1, 2, 0, 1, 2, 3, 3, 4)
    ]
    for call, file in enumerate(written.files):
        expected = sorted((c.track, c.layer, c.index, c.duration) for c in file.commands)
        assert commands_of(run, call) == expected
    kept = {name: facts.workloads for name, facts in run.info.submodules.items()}
    assert kept["instance_3"] == (
        ((3, 0, 6), (3, 1, 7)) if per_instance else ((3, 6, 6), (3, 7, 7))
    )
    assert drop(run, "unlabelled_call").startswith(
        "no call is labelled (runtime calls in one file: 9, calls of sdxl (steps: 2): 7)"
    )
    assert len(run.flows) == 18


def test_operations_of_different_models_are_not_merged(tmp_path: Path, imported: Import) -> None:
    """Two models with a layer of one name have an operator each, of their own time."""
    first, second = (Command(0, "Neural Engine Clusters", "linear_1", 0, 0, 0),) * 2
    first = Command(0, first.track, first.layer, 0, 1_000, 500)
    second = Command(0, second.track, second.layer, 0, 2_000, 900)
    run = imported(one_file(tmp_path / "in", [[first], [second]], instances=[0, 1]))
    operators = analyze(run).operators
    rows = operators.filter(pl.col("layer") == "linear_1").select("submodule", "total_ns")
    assert sorted(rows.iter_rows()) == [("instance_0", 500), ("instance_1", 900)]


@pytest.mark.parametrize("per_instance", [False, True])
def test_a_description_labels_the_calls(
    tmp_path: Path, imported: Import, per_instance: bool
) -> None:
    """On one device the order is known, so they are labelled as numbered files are."""
    aggregate(tmp_path / "in", second_device=0, per_instance=per_instance)
    run = imported(tmp_path / "in", pipeline="sd3", steps=2)
    assert run.calls["submodule"].to_list() == NAMES
    assert run.calls["step"].to_list() == [-1] * 6 + [0, 1, -1]
    assert run.info.submodules["text_encoder_2"].workloads[0] == (1, 0 if per_instance else 1, 1)
    assert run.info.recording.files == 1
    assert run.drops == ()


def test_workloads_that_count_all_calls_order_two_devices(tmp_path: Path, imported: Import) -> None:
    """What the times of two clocks cannot tell, workloads that no two calls share do."""
    aggregate(tmp_path / "in")
    run = imported(tmp_path / "in", pipeline="sd3", steps=2)
    assert run.calls["submodule"].to_list() == NAMES
    assert run.calls["device"].to_list()[:3] == ["rbln:0", "rbln:0", "rbln:1"]
    assert {found.kind for found in run.drops} == {"unaligned_clock"}


def test_without_an_order_nothing_is_labelled(tmp_path: Path, imported: Import) -> None:
    """Workloads that begin anew in each instance, on two clocks: calls of each model, unlabelled;
    both devices begin at once."""
    aggregate(tmp_path / "in", per_instance=True)
    run = imported(tmp_path / "in", pipeline="sd3", steps=2)
    counts = dict(run.calls.group_by("submodule").len().iter_rows())
    assert counts == {f"instance_{n}": 1 if n == 4 else 2 for n in range(5)}
    assert "devices without a common clock" in drop(run, "unlabelled_call")
    assert run.info.clocks.devices["rbln:1"].placed_by == "run_start"


def test_host_commands_go_to_the_call_that_they_prepare(tmp_path: Path, imported: Import) -> None:
    """Without a workload in their names: before a call they are its own, behind it where their
    sequence number continues it, whichever instance runs in between."""
    calls = [
        [
            Command(0, "Host", "in", 0, 0, 0, name=f"i{instance}_0_in_0"),
            Command(0, "Task DMA", "linear_1", 0, 0, 0, name=f"i{instance}_1_W{call}_linear_1_0"),
            Command(0, "Host", "out", 0, 0, 0, name=f"i{instance}_2_out_0"),
        ]
        for call, instance in enumerate((0, 1, 0))
    ]
    placed = [
        [
            Command(0, c.track, c.layer, 0, 1_000 * call + 100 * at, 50, name=c.name)
            for at, c in enumerate(commands)
        ]
        for call, commands in enumerate(calls)
    ]
    run = imported(one_file(tmp_path / "in", placed, instances=[0, 1, 0]))
    assert run.calls["submodule"].to_list() == ["instance_0", "instance_1", "instance_0"]
    layers = [[row[1] for row in commands_of(run, call)] for call in range(3)]
    assert layers == [["in", "out", "linear_1"]] * 3


def test_tracks_without_names_of_the_grammar(tmp_path: Path, imported: Import) -> None:
    """A `Device Workload` slice goes to the call that it begins with; one on a device without any
    call is a call of its own, so that no command is lost and nothing is labelled."""
    calls = [
        [
            Command(0, "Device Workload", "", 0, 1_000 * n, 900, name="decoder"),
            Command(0, "Task DMA", "linear_1", 0, 1_000 * n + 10, 500),
        ]
        for n in range(2)
    ]
    run = imported(one_file(tmp_path / "in", calls, instances=[0, 0]))
    assert [len(commands_of(run, call)) for call in range(2)] == [2, 2]
    calls[0].append(Command(1, "uDMA", "", 0, 5, 5, name="prefetch"))
    run = imported(one_file(tmp_path / "two", calls, instances=[0, 0]), pipeline="flux", steps=1)
    assert run.calls["submodule"].to_list()[-1] == "unlabelled"
    assert len(run.commands) == 5


def test_a_single_stream_file_is_divided_by_its_workloads(tmp_path: Path, imported: Import) -> None:
    """Without an instance in the names the calls are of one model, which nothing names."""
    calls = [runtime_call(0, 100_000 * n, ["linear_1"]) for n in range(3)]
    run = imported(one_file(tmp_path / "in", calls))
    assert run.calls["submodule"].to_list() == ["unlabelled"] * 3
    assert run.info.submodules["unlabelled"].workloads == ((-1, 0, 0), (-1, 1, 1), (-1, 2, 2))


def test_dependencies_between_calls_are_counted(tmp_path: Path, imported: Import) -> None:
    """A flow from one call to another has no place in a call's file: a drop says so."""
    calls = [
        [Command(0, "Task DMA", "a", 0, 1_000, 10, flows_out=(1_001,))],
        [Command(0, "Task DMA", "a", 0, 2_000, 10, flows_in=(1,))],
    ]
    run = imported(one_file(tmp_path / "in", calls, instances=[0, 0]))
    assert len(run.flows) == 0
    assert "between runtime calls" in drop(run, "dropped_events")


@given(st.data())
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_aggregate_ends_in_a_bundle_or_a_sentence(
    tmp_path: Path, data: st.DataObject
) -> None:
    """Whatever bytes are changed, cut or put in, nothing but an InputError is raised."""
    calls = [runtime_call(0, 100_000 * n, ["linear_1"]) for n in range(3)]
    whole = trace_bytes(calls, instances=[0, 1, 0])
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    middle = data.draw(st.binary(max_size=12))
    path = tmp_path / f"{STEM}.pb"
    path.write_bytes(whole[:begin] + middle + whole[end:])
    with suppress(InputError):
        profiler.load(import_rbln(path, tmp_path / "out"))


def test_skipping_all_calls_is_refused(tmp_path: Path, imported: Import) -> None:
    """As with files: nine calls leave none behind nine."""
    aggregate(tmp_path / "in", second_device=0)
    with pytest.raises(InputError, match="--skip 9 leaves none"):
        imported(tmp_path / "in", skip=9)
