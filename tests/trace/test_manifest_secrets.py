"""No secret reaches a bundle, whatever wrote it; those of older bundles reach no report."""

from __future__ import annotations

import json
from pathlib import Path

from profiler.run import load_bundle, write_parquet
from profiler.run.run import read_parquet
from profiler.text import Note
from profiler.trace import (
    MANIFEST_NAME,
    ROOT_DEVICE,
    BundleWriter,
    Drop,
    DropKind,
    DropReason,
    Recording,
    RunInfo,
    Submodule,
    merge_bundle,
    read_manifest,
)
from tests.trace.samples import small_bundle, small_calls, small_host

_SECRETS = ("hunter2", "abcDEF123456789", "alice:pw", "signature=1", "/home/alice")
_LINE = ("run.py", "--password=hunter2", "--hf-token", "hf_abcDEF123456789", "--steps", "28")


def _told() -> RunInfo:
    """A run that was told secrets everywhere."""
    error = "GET https://alice:pw@host/a?signature=1 with HF_TOKEN=hf_abcDEF123456789"
    return RunInfo(
        producer="capture",
        model="/home/alice/sd3",
        command_line=_LINE,
        settings={"hf_token": "hunter2", "steps": 28, "guided": True},
        pipeline_settings={"0": {"password": "hunter2"}},
        submodules={"vae": Submodule(model="https://alice:pw@host/vae")},
        recording=Recording(source="https://host/trace.json?signature=1"),
        drops=(
            Drop(DropKind.DROPPED_EVENTS, "a", 1, "events", Note.of(DropReason.ERROR, error=error)),
        ),
    )


def _written(parent: Path) -> Path:
    with BundleWriter.create(parent, "run") as bundle:
        for call, commands, counters in small_calls():
            bundle.write_call(call, commands, counters)
        bundle.write_host(*small_host(), ROOT_DEVICE)
        return bundle.finish(_told())


def _secrets_in(text: str) -> list[str]:
    return [secret for secret in _SECRETS if secret in text]


def test_none_is_written(tmp_path, monkeypatch):
    """Command line, settings, places and messages are written without; what is no secret stays."""
    monkeypatch.setenv("HOME", "/home/alice")
    text = (_written(tmp_path) / MANIFEST_NAME).read_text()
    assert _secrets_in(text) == []
    manifest = json.loads(text)
    assert manifest["command_line"] == [
        *("run.py", "--password=***", "--hf-token", "***", "--steps", "28"),
    ]
    assert manifest["settings"] == {"hf_token": "***", "steps": 28, "guided": True}
    assert manifest["model"] == "~/sd3"
    assert manifest["drops"][0]["detail"]["values"]["error"] == (
        "GET https://***@host/a?*** with HF_TOKEN=***"
    )


def test_none_is_written_as_parquet(tmp_path, monkeypatch):
    """A run that is written as Parquet has none either, and is read back as it was."""
    monkeypatch.setenv("HOME", "/home/alice")
    run = load_bundle(_written(tmp_path))
    write_parquet(run, tmp_path / "parquet")
    assert _secrets_in((tmp_path / "parquet" / "run.json").read_text()) == []
    assert read_parquet(tmp_path / "parquet").info.command_line == run.info.command_line


def test_an_older_bundle(tmp_path):
    """A manifest with secrets is read without them, and `merge` writes it anew without them."""
    bundle = small_bundle(tmp_path)
    path = bundle / MANIFEST_NAME
    old = json.loads(path.read_text()) | {"command_line": _LINE, "settings": {"api_key": "hunter2"}}
    path.write_text(json.dumps(old))
    info = read_manifest(path).info
    assert _secrets_in(repr(info)) == []
    merge_bundle(bundle)
    assert _secrets_in(path.read_text()) == []
    assert read_manifest(path).info == info


def test_the_environment_is_in_no_bundle(tmp_path, monkeypatch):
    """Nothing of the environment is recorded."""
    monkeypatch.setenv("HF_TOKEN", "hunter2-of-the-environment")
    data = b"".join(path.read_bytes() for path in _written(tmp_path).iterdir())
    assert b"hunter2" not in data
