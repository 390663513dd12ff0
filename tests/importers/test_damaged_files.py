"""Files of every format, changed at random: a run, perhaps with drops, or one sentence."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from profiler.errors import ProfilerError
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.importers.kineto.jobs import Job
from tests.importers.test_hostile_files import FILES

SHORT, LONG = 10, 400  # changes of each format
_VALUES = (None, -1, 2**63, 1e308, "x", "", [], {}, True, [[]], "9" * 40)


def _ranks(folder):
    """The folder of a job's two ranks."""
    Job(offsets_ns=(0, 300_000), rounds=4, straggler=1).write(folder)
    return folder


def _mixed(folder):
    """A folder of two recorders."""
    FILES["nsys"](folder, ("void kernel()", "void other()", "void third()", "void last()"))
    FILES["kineto"](folder, ("void kernel()", "void other()", "void third()", "void last()"))
    return folder


def _zip(folder):
    """An archive of a folder of two recorders."""
    inner = folder / "inner"
    inner.mkdir()
    _mixed(inner)
    path = folder / "made.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(inner.iterdir()):
            archive.write(file, f"run/{file.name}")
    return path


def _tgz(folder):
    """The same as tar.gz."""
    inner = folder / "inner"
    inner.mkdir()
    _mixed(inner)
    path = folder / "made.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(inner, "run")
    return path


def _packed(folder):
    """A profile in gzip."""
    path = FILES["onnxruntime"](folder, ("/vae/MatMul", "/vae/Add"))
    packed = folder / "made.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


FORMATS = {**FILES, "ranks": _ranks, "mixed": _mixed, "zip": _zip, "tgz": _tgz, "gzip": _packed}


def changed(data: bytes, draw: random.Random) -> bytes:
    """The data with one to three changes: cut, bytes overwritten, left out, doubled, or put in; in
    JSON a value of another kind, or a key left out, as well."""
    if data[:1] in (b"{", b"[") and draw.random() < 0.5:
        with suppress(ValueError):
            document = json.loads(data)
            _change(document, draw)
            return json.dumps(document).encode()
    found = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(max(len(found), 1))
        length = draw.choice((1, 1, 2, 8, 64, 512))
        how = draw.randrange(5)
        if how == 0:
            del found[at:]
        elif how == 1:
            found[at : at + length] = draw.randbytes(len(found[at : at + length]))
        elif how == 2:
            del found[at : at + length]
        elif how == 3:
            found[at:at] = found[at : at + length]
        else:
            found[at:at] = draw.randbytes(length)
    return bytes(found)


def _change(value: object, draw: random.Random) -> None:
    """Change something in a JSON document, in place."""
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = draw.choice(keys)
        inner = value[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.9:
            value = inner
            continue
        if draw.random() < 0.3:
            del value[key]
        else:
            value[key] = draw.choice(_VALUES)
        return


def _files(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


def _hold(kind, count, folder):
    draw = random.Random(f"{kind} of {count}")
    given = folder / "given"
    given.mkdir()
    path = FORMATS[kind](given)
    whole = {file: file.read_bytes() for file in _files(path)}
    read = 0
    for number in range(count):
        file = draw.choice(sorted(whole))
        file.write_bytes(changed(whole[file], draw))
        try:
            bundle = import_trace([path], folder / "traces", f"run{number}")
        except ProfilerError as error:
            text = str(error)
            assert text.strip(), number
            assert "\n" not in text, number
        else:
            load(bundle)
            read += 1
        file.write_bytes(whole[file])
    return read


@pytest.mark.parametrize("kind", FORMATS)
def test_a_sentence_or_a_run(tmp_path, kind):
    """A few changes of each format end in no traceback; undone, the file is read again."""
    _hold(kind, SHORT, tmp_path)
    path = tmp_path / "given"
    found = [one for one in path.iterdir() if one.is_file() and one.stem == "made"]
    given = found[0] if found and kind not in ("ranks", "mixed") else path
    run = load(import_trace([given], tmp_path / "traces", "whole"))
    assert run.commands.height + run.calls.height > 0  # times of stages alone have no commands


@pytest.mark.nightly
@pytest.mark.parametrize("kind", FORMATS)
def test_hundreds_of_changes(tmp_path, kind):
    """The same, often: some are read all the same."""
    assert _hold(kind, LONG, tmp_path) > 0 or kind == "zip"  # whose members have checksums
