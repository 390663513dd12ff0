"""The manifest comes back as it was written, and a hostile one is refused in one sentence."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.text import Note
from profiler.trace import (
    ClockName,
    Device,
    Drop,
    DropKind,
    DropReason,
    Overhead,
    Recording,
    RunInfo,
    Submodule,
    Warmup,
    manifest_fields,
    read_manifest,
)
from profiler.trace.manifest import CallEntry, Manifest
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    Clocks,
    Hardware,
    OverheadRatio,
    UnknownCost,
    WhyUnknown,
)
from tests.trace.strategies import calls

REPOSITORY = Path(__file__).resolve().parents[2]
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
        "format_version": 2,
        "run_id": "run",
        "created": "2026-11-21T09:30:00+00:00",
        "producer": "capture",
        "calls": [_entry()],
        "files": {"host.pb": 50, "merged.pb": 150},
        "drops": [],
    }
    return {**document, **changes}


def _read(folder: Path, document: Any) -> Manifest:
    path = folder / "manifest.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_manifest(path)


def test_round_trip(tmp_path: Path) -> None:
    """Everything that a producer knows comes back equal."""
    files = Note.of(DropReason.FILES_MISSING, numbers=(1, 2))
    advice = Note.of(DropReason.COPY_ALL)
    nested = Note.of(DropReason.NOT_LABELLED, found=(files,), advice=advice)
    info = RunInfo(
        producer="capture",
        capabilities=("memory", "timeline"),
        model="tiny",
        pipeline="StableDiffusion3Pipeline",
        command_line=("profile-sd3", "run", "--prompt", "ünïcode"),
        versions={"onnxruntime": "1.31"},
        hardware=Hardware(cores=2),
        devices={"cpu:0": Device(hardware="CPU", cores=(0,), shared_with=("cpu:1",))},
        submodules={"vae": Submodule(device="cpu:0", overhead_ratio=OverheadRatio(factor=0.9))},
        settings={"steps": 28, "guidance": 7.0, "tiling": True, "seed": None, "size": "1024"},
        pipeline_settings={"0": {"steps": 4}},
        recording=Recording(source="x.json", with_stack=False),
        clocks=Clocks(clock=ClockName.REALTIME, monotonic_offset_ns=-5),
        overhead=Overhead(share=0.01, unknown=(UnknownCost(why=WhyUnknown.TOO_BUSY),)),
        warmup=Warmup(runs=1),
        attribution={"vae": Attribution(to=AttributedTo.CALLS, share=1.0)},
        drops=(Drop(DropKind.DROPPED_EVENTS, "vae", -1, "events", nested),),
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


@pytest.mark.parametrize("count", [0, 1, 256, 600])
def test_the_text_of_many_calls_is_made_in_pieces(tmp_path: Path, count: int) -> None:
    """Together they are the document as Python's json indents it, names that are no UTF-8 as
    U+FFFD, and none is larger than a few hundred calls."""
    calls = [_entry(index=n, file=f"{n:03}_vae.pb", device="é") for n in range(count)]
    read = _read(tmp_path, _document(calls=calls, model='a\n "calls": []'))
    odd = tuple(replace(e, call=replace(e.call, submodule="v\ud800")) for e in read.calls)
    pieces = list(replace(read, calls=odd).chunks())
    text = b"".join(pieces).decode()
    document = json.loads(text)
    assert text == json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    assert document["model"] == 'a\n "calls": []'
    assert document["calls"] == [one | {"submodule": "v\ufffd"} for one in calls]
    assert max(map(len, pieces)) < 256 * 500


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
        with pytest.raises(InputError, match=r"no plain file name|expected str"):
            _read(tmp_path, document)


@pytest.mark.parametrize(
    "field", ["index", "pipeline", "step", "start_ns", "duration_ns", "bytes", "commands"]
)
@pytest.mark.parametrize(
    "value", [1 << 64, -(1 << 64), -2, 1e300, "1", True, None, [], float("inf")]
)
def test_numbers_that_tables_cannot_hold(tmp_path: Path, field: str, value: Any) -> None:
    """Huge, negative, fractional and non-numbers are refused where an integer must stand."""
    with pytest.raises(InputError, match=r"manifest\.json .*remove it and run"):
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
        _document(drops=[{}]),
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
    """What is no manifest is refused in one sentence that names the file and the recommendation."""
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
        _read(tmp_path, _document(format_version=3, calls="of another kind"))
    assert "remove" not in str(caught.value)


def test_older_format(tmp_path: Path) -> None:
    """A bundle of version 1 is refused by a sentence that names it and what to do."""
    with pytest.raises(InputError, match=r"manifest\.json has format 1, .*record the run again"):
        _read(tmp_path, _document(format_version=1, drops=[]))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"overhead": {"share": "much"}}, "overhead.share: expected float"),
        ({"devices": {"cpu:0": {}, "cpu:1": {"cores": [0, "1"]}}}, "devices.cpu:1.cores[1]: "),
        ({"submodules": {"vae": {"modules": {"": "VAE", "up": 5}}}}, "submodules.vae.modules.up: "),
        ({"overhead": {"measured": {"vae": {"call_n": 1}}}}, "overhead.measured.vae: unknown key"),
        ({"foo": 1}, "unknown key foo"),
        ({"a\nb": 1}, "unknown key a\\nb"),
        ({"settings": {"a\nb": []}}, "settings.'a\\nb': expected"),
        ({"calls": [_entry(step="0")]}, "calls[0].step: expected int"),
        ({"drops": [{"kind": "gone"}]}, "drops[0].kind: invalid enum value"),
        ({"hardware": {"memory_bytes": -1}}, "hardware.memory_bytes: expected int >= 0"),
        ({"overhead": {"share": 10**400}}, "overhead.share: number out of range"),
    ],
)
def test_the_wrong_key_is_named(tmp_path: Path, changes: dict[str, Any], where: str) -> None:
    """One sentence says which key is wrong, through mappings and lists, and the file."""
    with pytest.raises(InputError) as caught:
        _read(tmp_path, _document(**changes))
    assert f"manifest.json is not a profile-sd3 manifest ({where}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_docs_describe_every_key() -> None:
    """`docs/file-format.md` has the name of every field that a manifest may have."""
    text = (REPOSITORY / "docs" / "file-format.md").read_text(encoding="utf-8")
    described = set(re.findall(r"`(\w+)`", text))
    fields = {
        name
        for struct in manifest_fields.Fields.__subclasses__()
        if struct.__module__.startswith("profiler.trace.manifest_")
        for name in struct.__struct_fields__
    }
    fields |= {*RunInfo.__struct_fields__} - {"drops"} | {"drops"}
    assert fields - described == set()
    assert {kind.value for kind in DropKind} - described == set()


def test_unreadable(tmp_path: Path) -> None:
    """A missing manifest, and a folder in its place, are refused with the system's reason."""
    for path, reason in ((tmp_path / "none.json", "No such file"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=reason):
            read_manifest(path)


@pytest.mark.parametrize(
    ("detail", "reason"),
    [
        ("in words", "expected"),
        ({"code": "nobody_knows_this"}, "nobody_knows_this"),
        ({"code": "error", "values": {"error": None}}, "expected"),
        ({"code": "error", "values": {"code": "x"}}, "is called code"),
        ({"code": "error", "values": {"error": {"code": "x"}}}, "x"),
    ],
)
def test_a_reason_that_is_no_code_is_refused(tmp_path: Path, detail: object, reason: str) -> None:
    """Sentences, unknown codes, and values that would stand for the code are one clear sentence."""
    drop = {"kind": "dropped_events", "where": "vae", "count": 1, "unit": "events"}
    with pytest.raises(InputError, match=reason):
        _read(tmp_path, _document(drops=[{**drop, "detail": detail}]))
