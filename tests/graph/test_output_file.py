"""An output appears under its final name when it was verified, and never over its input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from profiler.errors import OutputError
from profiler.graph import read_model, run_model
from profiler.graph.model import output_folder, refuse_over_input, write_model
from tests.graph.models import external_model, graph, save


def files(folder: Path) -> list[str]:
    """Names of all files and folders below, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def relu(folder: Path) -> Path:
    """A model of one Relu."""
    return save(graph("float[2] x", "float[2] y", "y = Relu(x)"), folder)


def test_written_once_checked(tmp_path: Path) -> None:
    """The check sees the written model under its name, elsewhere; then it is in place."""
    path, out = relu(tmp_path), tmp_path / "new" / "out.onnx"
    seen = []

    def check(written: Path) -> str:
        seen.append((written.name, written.is_file(), out.exists()))
        return "checked"

    assert write_model(read_model(path), out, sources=[path], check=check) == "checked"
    assert seen == [("out.onnx", True, False)]
    assert files(tmp_path / "new") == ["out.onnx"]
    read_model(out)


def test_a_failed_check_leaves_nothing(tmp_path: Path) -> None:
    """What the check raises passes through, and an older output stays as it was."""
    path = relu(tmp_path)
    out = tmp_path / "new" / "out.onnx"
    out.parent.mkdir()
    out.write_bytes(b"older")

    def check(written: Path) -> None:
        raise OutputError("differs")

    with pytest.raises(OutputError, match="differs"):
        write_model(read_model(path), out, sources=[path], check=check)
    assert files(out.parent) == ["out.onnx"]
    assert out.read_bytes() == b"older"


def test_external_data_stays_external(tmp_path: Path) -> None:
    """A model with external data is written with OUT.data beside it, and computes the same."""
    path, out = external_model(tmp_path), tmp_path / "out" / "o.onnx"
    model = read_model(path)
    big = np.arange(4096, dtype=np.float32)
    value = ir.Value(name="big", const_value=ir.tensor(big, name="big"))
    model.graph.register_initializer(value)
    write_model(model, out, sources=[path], check=lambda written: None)
    assert files(out.parent) == ["o.onnx", "o.onnx.data"]
    again = read_model(out)
    assert np.array_equal(again.graph.initializers["big"].const_value.numpy(), big)
    x = {"x": np.ones((2, 8), np.float32)}
    assert np.array_equal(run_model(out, x)["y"], run_model(path, x)["y"])


def test_never_over_an_input(tmp_path: Path) -> None:
    """The model itself, a link to it, and the file of its external data are refused as outputs."""
    path = external_model(tmp_path, location="other.onnx.data")
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    before = {name: (tmp_path / name).read_bytes() for name in ("model.onnx", "other.onnx.data")}
    for out in (path, link, tmp_path / "other.onnx", tmp_path / "other.onnx.data"):
        with pytest.raises(OutputError, match="is an input, which is never written over"):
            write_model(read_model(path), out, sources=[path], check=lambda written: None)
    with pytest.raises(OutputError, match="is a folder"):
        refuse_over_input([tmp_path], [path])
    assert before == {name: (tmp_path / name).read_bytes() for name in before}


def test_a_folder(tmp_path: Path) -> None:
    """A folder is copied without what is replaced, and appears when the block has ended."""
    source = tmp_path / "in"
    (source / "unet").mkdir(parents=True)
    (source / "config.json").write_text("{}")
    path = relu(source / "unet")
    out = tmp_path / "out"
    with output_folder(source, out, [path]) as copy:
        assert not out.exists()
        assert files(copy) == ["config.json", "unet"]
        (copy / "unet" / "model.onnx").write_bytes(b"new")
    assert files(out) == ["config.json", "unet", "unet/model.onnx"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["in", "out"]


def test_folders_that_are_refused(tmp_path: Path) -> None:
    """A folder that holds something, or lies in the input, is refused; an error leaves nothing."""
    source = tmp_path / "in"
    source.mkdir()
    path = relu(source)
    for out, sentence in ((tmp_path, "exists already"), (source / "out", "lies in the input")):
        with pytest.raises(OutputError, match=sentence), output_folder(source, out, []):
            pass
    with pytest.raises(OutputError, match="stop"), output_folder(source, tmp_path / "o", [path]):
        raise OutputError("stop")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["in"]
