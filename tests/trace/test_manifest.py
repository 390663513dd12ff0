"""The manifest comes back as it was written, and a hostile one is refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.events import DropKind, Loss
from profiler.trace.manifest import CallEntry, Manifest, RunInfo, read_manifest
from tests.trace.strategies import calls

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_ENTRIES = st.integers(0, 3).flatmap(
    lambda count: st.tuples(*(calls(st.just(index)) for index in range(count)))
)


def _entry(**changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "index": 0,
        "submodule": "vae",
        "stage": "decode",
        "branch": "",
        "step": -1,
        "device": "cpu:0",
        "start_ns": 10,
        "duration_ns": 20,
        "ops_traced": True,
        "input_shapes": {"latent": "float32[1,16,8,8]"},
        "file": "000_vae.decode.pb",
        "bytes": 100,
        "commands": 3,
    }
    return {**entry, **changes}


def _document(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "format_version": 1,
        "run_id": "run",
        "created": "2026-11-21T09:30:00+00:00",
        "producer": "capture",
        "calls": [_entry()],
        "files": {"host.pb": 50, "merged.pb": 150},
        "losses": [],
    }
    return {**document, **changes}


def _read(folder: Path, document: Any) -> Manifest:
    path = folder / "manifest.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_manifest(path)


def test_round_trip(tmp_path: Path) -> None:
    """Everything that a producer knows comes back equal."""
    info = RunInfo(
        producer="capture",
        model="tiny",
        pipeline="StableDiffusion3Pipeline",
        command_line=("profile-sd3", "run", "--prompt", "ünïcode"),
        versions={"onnxruntime": "1.31"},
        hardware={"cores": 2},
        devices={"cpu:0": {"hardware": "CPU", "cores": [0]}},
        submodules={"vae": {"device": "cpu:0", "activate_profiler": True}},
        settings={"steps": 28, "guidance": 7.0},
        clocks={"clock": "CLOCK_REALTIME", "monotonic_offset_ns": -5},
        overhead={"share": 0.01},
        warmup={"steps": 1},
        attribution={"vae": {"share": 1.0}},
        losses=(Loss(DropKind.DROPPED_EVENTS, "vae", -1, "events", "buffer full"),),
    )
    read = _read(tmp_path, _document())
    manifest = replace(read, info=info)
    assert _read(tmp_path, manifest.to_json()) == manifest


@given(_ENTRIES)
def test_any_calls_round_trip(tmp_path_factory: pytest.TempPathFactory, given_calls: Any) -> None:
    """Calls with any fields come back equal."""
    folder = tmp_path_factory.mktemp("manifest")
    entries = tuple(CallEntry(call, f"{call.index}.pb", 1, 2) for call in given_calls)
    manifest = Manifest("run", "now", RunInfo(producer="capture"), entries, {"merged.pb": 9})
    assert _read(folder, manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "name",
    [
        "../evil.pb",
        "/etc/passwd",
        "a/b.pb",
        "..",
        ".",
        "",
        "a\x00.pb",
        "a\n.pb",
        "\x1b[2J",
        5,
        None,
    ],
)
def test_no_file_outside_the_bundle(tmp_path: Path, name: Any) -> None:
    """A file name that leads out of the bundle, or is no plain name, is refused."""
    for document in (
        _document(calls=[_entry(file=name)]),
        _document(files={name: 1} if isinstance(name, str) else {"a/b": 1}),
    ):
        with pytest.raises(InputError, match="no plain file name"):
            _read(tmp_path, document)


@pytest.mark.parametrize(
    "field", ["index", "pipeline", "step", "start_ns", "duration_ns", "bytes", "commands"]
)
@pytest.mark.parametrize(
    "value", [1 << 64, -(1 << 64), -2, 1e300, "1", True, None, [], float("inf")]
)
def test_numbers_that_tables_cannot_hold(tmp_path: Path, field: str, value: Any) -> None:
    """Huge, negative, fractional and non-numbers are refused where an integer must stand."""
    with pytest.raises(InputError, match="no integer"):
        _read(tmp_path, _document(calls=[_entry(**{field: value})]))


@pytest.mark.parametrize(
    "document",
    [
        [],
        "null",
        "5",
        "{",
        "[" * 100_000,
        '{"format_version": ' + "9" * 5000 + "}",
        _document(calls={}),
        _document(calls=[[]]),
        _document(calls=[None]),
        _document(files=[]),
        _document(losses=[{}]),
        _document(devices=[1]),
        _document(devices={"cpu:0": 5}),
        _document(submodules={"vae": "cpu:0"}),
        _document(versions="1.0"),
        _document(calls=[_entry(input_shapes=[])]),
        _document(format_version="one"),
        {key: value for key, value in _document().items() if key != "run_id"},
    ],
)
def test_wrong_documents(tmp_path: Path, document: Any) -> None:
    """What is no manifest is refused in one sentence that names the file and the remedy."""
    with pytest.raises(InputError, match=r"manifest\.json .*remove it and run") as caught:
        _read(tmp_path, document)
    assert "\n" not in str(caught.value)


@given(st.dictionaries(st.sampled_from([*_document(), "devices", "settings"]), _JSON))
def test_any_json(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]) -> None:
    """Any JSON in any place is read or refused, never a crash."""
    folder = tmp_path_factory.mktemp("manifest")
    try:
        manifest = _read(folder, _document(**changes))
    except InputError:
        return
    assert all(entry.call.index < 1 << 31 for entry in manifest.calls)


def test_a_call_or_file_listed_twice(tmp_path: Path) -> None:
    """A call never counts twice: neither its number nor its file may be listed again."""
    twice = [_entry(), _entry(file="other.pb")]
    with pytest.raises(InputError, match="a call is listed twice"):
        _read(tmp_path, _document(calls=twice))
    for second in (_entry(index=1), _entry(index=1, file="merged.pb")):
        with pytest.raises(InputError, match="a file is listed twice"):
            _read(tmp_path, _document(calls=[_entry(), second]))


def test_newer_format(tmp_path: Path) -> None:
    """A newer format is refused with the advice to update, not to remove the file."""
    with pytest.raises(InputError, match=r"newer profile-sd3 .*update") as caught:
        _read(tmp_path, _document(format_version=2, calls="of another kind"))
    assert "remove" not in str(caught.value)


def test_unreadable(tmp_path: Path) -> None:
    """A missing manifest, and a folder in its place, are refused with the system's reason."""
    for path, reason in ((tmp_path / "none.json", "No such file"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=reason):
            read_manifest(path)
