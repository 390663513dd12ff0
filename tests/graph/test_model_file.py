"""Reading a model: external data is mapped, and every fault of a file is one sentence."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.graph import check_model, read_graph, read_model
from profiler.graph.model import model_files
from tests.examples import examples
from tests.graph.models import external_model, graph, save

SAMPLES = [
    graph(
        "float[2,4] x",
        "float[2,4] y",
        '[n] a = LayerNormalization<axis=-1>(x, "", w) b = Cast<to=11>(a) c = Cast<to=1>(b) '
        "d = Transpose<perm=[1,0]>(c) e = Transpose<perm=[1,0]>(d) y = Add(e, w)",
        initializers="float[4] w={1,2,3,4}",
    ),
    graph(
        "float[2,3,4] x",
        "float[2,3,4] y, string[1] z",
        "kt = Transpose<perm=[0,2,1]>(x) s = MatMul(x, kt) u = Reshape(s, t) p = Softmax(u) "
        "y = MatMul(p, x) z = Identity(q)",
        initializers='int64[3] t={2,3,3}, string[1] q={"text"}',
    ),
]


def test_external_data_is_mapped(tmp_path: Path) -> None:
    """A weight in a file beside the model is there, and is not loaded before it is asked for."""
    model = read_model(external_model(tmp_path))
    weight = model.graph.initializers["w"].const_value
    assert weight.raw is None
    assert np.array_equal(weight.numpy(), np.arange(128, dtype=np.float32).reshape(8, 16))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 0}, r"needs w\.data, which is missing"),
        ({"size": 511}, r"up to byte 512, but the file ends at 511"),
        ({"location": "../w.data"}, r"outside the model's folder"),
        ({"location": "/etc/passwd"}, r"outside the model's folder"),
        ({"length": 400}, r"400 bytes at 0 of w\.data where its dims ask for 512"),
        ({"length": 1 << 60}, r"where its dims ask for 512"),
        ({"location": "", "size": 0}, r"names no file of its external data"),
        ({"location": "a" * 9000, "size": 0}, r"needs a{200}…, which is missing"),
    ],
)
def test_faults_of_external_data(tmp_path: Path, options: dict, sentence: str) -> None:
    """Missing, cut, escaping and wrongly sized data is one sentence, and one finding of check."""
    path = external_model(tmp_path, **options)
    with pytest.raises(InputError, match=rf"model\.onnx: tensor 'w' .*{sentence}"):
        read_model(path)
    errors = [found for found in check_model(path).findings if found.severity == "error"]
    assert [(found.rule, found.node) for found in errors] == [("missing_data", "w")]


def test_links_that_escape(tmp_path: Path) -> None:
    """External data behind a link out of the folder, or with a second hard link, is not read."""
    (tmp_path / "in").mkdir()
    path = external_model(tmp_path / "in", size=0)
    (tmp_path / "secret").write_bytes(bytes(512))
    data = tmp_path / "in" / "w.data"
    data.symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="outside the model's folder"):
        read_model(path)
    data.unlink()
    os.link(tmp_path / "secret", data)
    with pytest.raises(InputError, match="several hard links"):
        read_model(path)
    data.unlink()
    data.symlink_to(data)
    with pytest.raises(InputError, match=r"no usable path|missing"):
        read_model(path)


@pytest.mark.parametrize("content", [b"", b"hello, this is no model", bytes(100), b"\x08\x0a"])
def test_what_is_no_model(tmp_path: Path, content: bytes) -> None:
    """Empty files, text and messages without a graph are named as no ONNX model."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.onnx is not a readable ONNX model"):
        read_graph(path)


def test_a_cut_file(tmp_path: Path) -> None:
    """A model cut at any byte is refused in one sentence, or is still a whole model."""
    whole = save(
        graph("float[2,4] x", "float[2,4] y", "y = Add(x, w)", initializers="float[4] w={1,2,3,4}"),
        tmp_path,
    ).read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        sentences = []
        try:
            check_model(path)
        except InputError as error:
            sentences.append(str(error))
        assert all(sentence.startswith(f"{path} ") for sentence in sentences)


@settings(max_examples=examples(300))
@given(
    number=st.integers(0, len(SAMPLES) - 1),
    changes=st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=4),
)
def test_damaged_bytes(
    number: int, changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A model with any bytes changed is checked, or refused in one sentence, whatever they say."""
    content = bytearray(SAMPLES[number].SerializeToString())
    for place, byte in changes:
        content[place % len(content)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        check_model(path, static=True)


def test_data_that_its_dims_do_not_fit(tmp_path: Path) -> None:
    """A tensor in the file with too few bytes, or negative dims, is one sentence."""
    model = graph("float[2] x", "float[2] y", "y = Add(x, w)", arrays={"w": np.ones(2, "float32")})
    model.graph.initializer[0].raw_data = bytes(7)
    with pytest.raises(InputError, match="has 7 bytes of data where its dims ask for 8"):
        read_model(save(model, tmp_path))
    model.graph.initializer[0].dims[0] = -1
    with pytest.raises(InputError, match=r"dims|not a readable ONNX model"):
        read_model(save(model, tmp_path))


def test_models_of_a_folder(tmp_path: Path) -> None:
    """All .onnx files below a folder are found by name; none at all, or no such path, is said."""
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        external_model(tmp_path / name)
    assert model_files(tmp_path) == [tmp_path / "a/model.onnx", tmp_path / "b/model.onnx"]
    assert model_files(tmp_path / "a/model.onnx") == [tmp_path / "a/model.onnx"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty holds no \.onnx file"):
        model_files(tmp_path / "empty")
    with pytest.raises(InputError, match="does not exist"):
        model_files(tmp_path / "nowhere")


def test_three_gigabytes_are_not_read(tmp_path: Path) -> None:
    """A model with a sparse file of 3 GiB is checked without reading it: memory grows by less than
    a hundredth of that, and weights that look the same are said to do so in samples."""
    nodes = "g = MatMul(x, a) h = MatMul(g, b) y = MatMul(h, c)"
    model = graph("float[1,16384] x", "float[1,16384] y", nodes)
    size = 1 << 30  # bytes of each weight
    for number, name in enumerate("abc"):
        tensor = onnx.TensorProto(
            name=name,
            dims=[16384, 16384],
            data_type=onnx.TensorProto.FLOAT,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        place = (("location", "w.data"), ("offset", str(number * size)), ("length", str(size)))
        for key, value in place:
            tensor.external_data.add(key=key, value=value)
        model.graph.initializer.append(tensor)
    path = save(model, tmp_path)
    with (tmp_path / "w.data").open("wb") as file:
        file.truncate(3 * size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = check_model(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert grown < 3 * size // 1024 // 100
    looked_at = [found for found in result.findings if found.rule != "unnamed_node"]
    assert [(found.severity, found.node, found.fix) for found in looked_at] == [
        ("note", "b", False),
        ("note", "c", False),
    ]
    assert "in samples the same" in looked_at[0].evidence


@pytest.mark.parametrize(
    ("element_type", "field", "entries"),
    [(1, "float_data", 15), (7, "int64_data", 17), (22, "int32_data", 7), (14, "float_data", 16)],
)
def test_too_few_or_many_entries(
    tmp_path: Path, element_type: int, field: str, entries: int
) -> None:
    """Data in typed fields has as many entries as its dims ask for: sixteen, half as many in four
    bits, twice as many of complex numbers."""
    for count, sound in ((entries, False), ({22: 8, 14: 32}.get(element_type, 16), True)):
        model = graph("float[2] x", "float[2] y", "y = Relu(x)")
        tensor = onnx.TensorProto(name="w", dims=[4, 4], data_type=element_type)
        getattr(tensor, field).extend([1] * count)
        model.graph.initializer.append(tensor)
        path = save(model, tmp_path)
        if sound:
            read_model(path)
            continue
        with pytest.raises(InputError, match=f"tensor 'w' has {entries} entries of data where"):
            read_model(path)


def test_sparse_weights(tmp_path: Path) -> None:
    """What the IR would lose is refused."""
    model = graph("float[2] x", "float[2] y", "y = Add(x, w)")
    sparse = model.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.ones(1, np.float32), "w"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.zeros(1, np.int64)))
    with pytest.raises(InputError, match=r"has sparse weights, .*: export it with dense ones"):
        read_model(save(model, tmp_path))


def test_the_reason_behind_an_unreadable_model(tmp_path: Path) -> None:
    """The sentence has the fault itself, not the place in the reader that met it."""
    model = graph("float[2] x", "float[2] y", "y = Relu(x) y = Neg(x)")
    with pytest.raises(InputError, match=r"\(Output 'y' is redeclared .*\): give another file"):
        read_model(save(model, tmp_path))
