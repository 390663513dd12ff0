"""A shared run tells of the run and not of who ran it, and gives the tables that the run gives."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.run import load_bundle
from profiler.tools.share import Removal, share
from profiler.trace import (
    MANIFEST_NAME,
    MERGED_NAME,
    ROOT_DEVICE,
    ActivityKind,
    BundleWriter,
    CommandBuilder,
    HostActivity,
    Recording,
    RunInfo,
    Submodule,
    Track,
)
from tests.trace.samples import small_calls, small_host

_TOLD = ("alice", "gpu-box-7", "/home/alice", "astronaut", "project-x", "s3cr3t")
_FRAME = "/home/alice/project-x/model.py(12): forward"


def _removal() -> Removal:
    return Removal({"gpu-box-7": "host", "alice": "user"}, ("/home/alice",))


def _bundle(parent: Path, compress: str = "none", *, telling: bool = True) -> Path:
    """The small run; `telling`: with paths and names in manifest and traces."""
    info = RunInfo(
        producer="capture",
        model="/home/alice/project-x",
        command_line=("run.py", "--prompt", "an astronaut", "--hf-token", "s3cr3t"),
        versions={"torch": "2.9"},
        submodules={"transformer": Submodule(device="cpu:1", model="project-x/model.onnx")},
        settings={
            "steps": 4,
            "num_images_per_prompt": 2,
            "negative_prompt": "no astronaut",
            "scheduler": "euler",
        },
        recording=Recording(source="gpu-box-7.project-x.json.gz"),
        host_activities=(
            HostActivity(
                name=_FRAME, kind=ActivityKind.FUNCTION, thread="alice 1", start_ns=1, duration_ns=2
            ),
        ),
    )
    with BundleWriter.create(parent, "small", compress=compress) as bundle:
        for call, commands, counters in small_calls():
            if telling and call.submodule == "vae":
                builder = CommandBuilder()
                track = Track(call.device, "queue of gpu-box-7", "compute")
                builder.add(track, _FRAME, "Conv", call.start_ns, 10, kernel="alice_gemm")
                builder.add(track, "/mid/conv_in/Conv", "Conv", call.start_ns + 20, 10)
                bundle.write_call(replace(call, ops_traced=True), builder.build(), counters)
                continue
            bundle.write_call(call, commands, counters)
        bundle.write_host(*small_host(), ROOT_DEVICE)
        return bundle.finish(info if telling else RunInfo(producer="capture"))


def _unzipped(path: Path, into: Path) -> Path:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(into)
    (folder,) = into.iterdir()
    return folder


@pytest.mark.parametrize("compress", ["none", "deflate"])
def test_nothing_that_tells_is_in_it(tmp_path, compress):
    """Command line, prompts, paths, host and user are in no file of it, and are listed."""
    bundle = _bundle(tmp_path, compress)
    (bundle / "report.html").write_text("a page of alice's")
    shared = share(bundle, tmp_path / "run.zip", _removal())
    copy = _unzipped(shared.path, tmp_path / "there")
    for path in copy.iterdir():
        data = path.read_bytes().lower()
        assert [word for word in _TOLD if word.encode() in data] == [], path.name
    assert shared.arguments == 5
    assert shared.prompts == ("negative_prompt",)
    assert shared.left_out == ("report.html",)
    assert {"/home/alice/project-x/model.py", "project-x/model.onnx"} <= shared.replaced.keys()
    assert {name.partition("-")[0] for name in shared.replaced.values()} == {"path", "host", "user"}
    manifest = json.loads((copy / MANIFEST_NAME).read_text())
    assert "command_line" not in manifest
    assert manifest["settings"] == {
        "steps": 4, "num_images_per_prompt": 2, "scheduler": "euler",
    }  # fmt: skip


def test_it_gives_the_same_tables(tmp_path):
    """What the unzipped file gives is what the bundle gives, but for the texts that went."""
    bundle, removal = _bundle(tmp_path), _removal()
    shared = share(bundle, tmp_path / "run.zip", removal)
    before, after = load_bundle(bundle), load_bundle(_unzipped(shared.path, tmp_path / "there"))
    ours, theirs = (analyze(run).tables() for run in (before, after))
    for name in ("stages", "devices", "steps", "calls"):
        assert ours[name].equals(theirs[name]), name
    layers = before.commands["layer"].cast(str)
    assert after.commands["layer"].cast(str).to_list() == [removal.text(name) for name in layers]
    assert "/mid/conv_in/Conv" in layers  # a node of ONNX, no path
    assert "/mid/conv_in/Conv" in after.commands["layer"].cast(str)
    assert not after.drops


def test_a_run_that_tells_nothing_stays_as_it_is(tmp_path):
    """Nothing is replaced where there is nothing; all frames are equal; merged.pb is whole."""
    bundle = _bundle(tmp_path, telling=False)
    shared = share(bundle, tmp_path / "run.zip", _removal())
    copy = _unzipped(shared.path, tmp_path / "there")
    before, after = load_bundle(bundle), load_bundle(copy)
    assert not shared.replaced
    assert before.commands.equals(after.commands)
    assert before.calls.equals(after.calls)
    assert not after.drops
    parts = [path.read_bytes() for path in copy.glob("*.pb") if path.name != MERGED_NAME]
    assert (copy / MERGED_NAME).stat().st_size == sum(map(len, parts))


def test_the_zip_itself_tells_neither_when_nor_who(tmp_path):
    """Its entries have no time of their own and no owner; two of one run differ in stand-ins."""
    bundle = _bundle(tmp_path)
    for name in ("a.zip", "b.zip"):
        share(bundle, tmp_path / name, _removal())
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        entries = archive.infolist()
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.extra for entry in entries} == {b""}
    texts = [zipfile.ZipFile(tmp_path / n).read("small/manifest.json") for n in ("a.zip", "b.zip")]
    assert texts[0] != texts[1]  # hashed with a key that is thrown away


def test_a_name_that_a_submodule_has_is_spared(tmp_path):
    """A user who is called as a submodule stays, which is said: else the run would be another."""
    removal = Removal({"transformer": "user"}, ())
    shared = share(_bundle(tmp_path), tmp_path / "run.zip", removal)
    assert shared.spared == ("transformer",)
    assert load_bundle(_unzipped(shared.path, tmp_path / "there")).calls["submodule"][2] == (
        "transformer"
    )


def test_a_run_that_is_not_whole_is_refused(tmp_path):
    """A file that is cut would be shared as if it were all."""
    bundle = _bundle(tmp_path)
    call = next(bundle.glob("000*.pb"))
    call.write_bytes(call.read_bytes()[:-5])
    with pytest.raises(InputError, match="is not whole"):
        share(bundle, tmp_path / "run.zip", _removal())
    assert not (tmp_path / "run.zip").exists()


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("/home/alice/a b", "/home/alice/a"),
        ("at /data/models/sd3: no file", "/data/models/sd3"),
        ("~/models", "~/models"),
        (r"C:\Users\bob\x.onnx missing", r"C:\Users\bob\x.onnx"),
        ("src/nodes/forward.py(3)", "src/nodes/forward.py"),
        ("site-packages/torch/nn.py", "site-packages/torch/nn.py"),
        ("On GPU-Box-7.", "GPU-Box-7"),
    ],
)
def test_paths_and_names_in_texts(text, gone):
    """Paths and names go, and what stands around them stays."""
    removal = _removal()
    (stand_in,) = {removal.text(text).replace(*pair) for pair in [("", "")]} - {text}
    assert removal.found.keys() == {gone}
    assert stand_in == text.replace(gone, removal.found[gone])
    assert removal.text(stand_in) == stand_in


@pytest.mark.parametrize(
    "text",
    [
        "/transformer_blocks.0/attn/to_q/MatMul",
        "/text_model/encoder/layers.0/mlp/fc1/Add",
        "CLIPTextTransformer.CLIPEncoder/aten::mm",
        "cpu:0/Host",
        "malice",
        "float32[2,16] float32[16] -> float32[2,16]",
        "void at::native::kernel<c10::Half, (anonymous namespace)>(int)",
    ],
)
def test_names_of_nodes_and_kernels_stay(text):
    """Names with slashes that are no paths, and words that only hold a name, stay."""
    assert _removal().text(text) == text


def test_this_machines_names(monkeypatch):
    """Host and user are known; names that everybody has are none."""
    monkeypatch.setattr("socket.gethostname", lambda: "box9.lab.example")
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    removal = Removal.of_this_machine(["acme"])
    assert removal.words == {"acme": "text", "box9.lab.example": "host", "box9": "host"}
