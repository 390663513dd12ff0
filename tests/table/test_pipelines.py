"""The column `pipeline`: which pipeline call calls, commands and spans belong to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiler.tools.sources import load
from profiler.trace import (
    HOST_TRACK,
    NO_PIPELINE,
    ROOT_DEVICE,
    BundleWriter,
    CommandBuilder,
    RunInfo,
    Track,
)
from tests.runs import EPOCH, make_call, make_span

_HOST = Track(ROOT_DEVICE, HOST_TRACK, "host")
_QUEUE = Track("rbln:0", "Cluster 0", "compute")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Calls of pipeline calls 1 and 0 and of none, one command each; host work of 1, 0 and none."""
    with BundleWriter.create(tmp_path, "run") as writer:
        for index, number in enumerate((1, 0, NO_PIPELINE)):
            builder = CommandBuilder()
            builder.add(_QUEUE, "mlp", "", EPOCH + 10 * index, 5)
            call = make_call(index, "t", 10 * index, 10 * index + 8, step=0, pipeline=number)
            writer.write_call(call, builder.build())
        builder = CommandBuilder()
        for start, number in enumerate((1, 0, NO_PIPELINE)):
            builder.add(_HOST, "work", "", EPOCH + start, 1, pipeline=number)
        spans = [make_span("pipeline", "P", 9 * n, 9 * n + 20, pipeline=n) for n in range(2)]
        writer.write_host(spans, builder.build(), ROOT_DEVICE)
        return writer.finish(RunInfo(producer="test"))


def test_commands_have_the_pipeline_call_of_their_call(bundle: Path) -> None:
    """Host work has its own; the merged file and the manifest say the same."""
    for path in (bundle, bundle / "merged.pb"):
        run = load(path)
        assert run.calls["pipeline"].to_list() == [1, 0, NO_PIPELINE]
        of_calls = run.commands.filter(run.commands["call"] >= 0)
        assert of_calls.select("call", "pipeline").rows() == [(0, 1), (1, 0), (2, NO_PIPELINE)]
        host = run.commands.filter(run.commands["call"] < 0)
        assert host["pipeline"].to_list() == [1, 0, NO_PIPELINE]
        assert run.spans["pipeline"].to_list() == [0, 1]


def test_calls_whose_file_is_lost_keep_theirs(bundle: Path) -> None:
    """The manifest knows the pipeline call of each call."""
    (bundle / "000_t.step000.pb").unlink()
    assert load(bundle).calls["pipeline"].to_list() == [1, 0, NO_PIPELINE]


def test_pandas_has_one_column_of_it(bundle: Path) -> None:
    """Whole numbers, those of the call or of the host work itself."""
    frame = load(bundle).to_pandas()
    assert list(frame["pipeline"]) == [1, 0, NO_PIPELINE, 1, 0, NO_PIPELINE]
    assert frame["pipeline"].dtype == "int32"
    assert not [name for name in frame.columns if name.startswith("pipeline_")]


def test_only_what_has_a_number_says_so() -> None:
    """A call of none is written without the field: its file is as it was before there were any."""
    from profiler.trace import encode_call, read_bytes

    call, nothing = make_call(0, "t", 0, 8, step=0, pipeline=7), CommandBuilder().build()
    without = replace(call, pipeline=NO_PIPELINE)
    assert len(encode_call(call, nothing)) == len(encode_call(without, nothing)) + 2
    assert read_bytes(encode_call(call, nothing)).calls == (call,)
