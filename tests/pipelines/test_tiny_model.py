"""The embedded model: small, without local paths, with the metadata that attribution needs."""

import json

import onnx
import pytest

from profiler.pipelines import default_model_folder

PARTS = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae_decoder")


def graph_of(part):
    return onnx.load(default_model_folder() / part / "model.onnx").graph


def keys_of(node):
    return {entry.key for entry in node.metadata_props}


def test_the_folder_is_small():
    """All files together stay below 6 MB, so that the model can live in git."""
    files = [path for path in default_model_folder().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 6_000_000


def test_no_file_holds_a_local_path():
    """No shipped file tells where it was made."""
    for path in default_model_folder().rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for trace in (b"/home", b"/root", b"/work", b"/tmp", b"site-packages", b".py"):
            assert trace not in content, f"{path.name} holds {trace.decode()}"


@pytest.mark.parametrize("part", PARTS)
def test_nodes_say_which_module_they_come_from(part):
    """At least 95 % of a part's nodes have their module path and class, and none a stack trace."""
    nodes = graph_of(part).node
    named = [node for node in nodes if "namespace" in keys_of(node)]
    assert len(named) >= 0.95 * len(nodes)
    assert not any("pkg.torch.onnx.stack_trace" in keys_of(node) for node in nodes)
    assert all("pkg.torch.onnx.class_hierarchy" in keys_of(node) for node in named)


@pytest.mark.parametrize("part", PARTS)
def test_nodes_have_names_of_their_own(part):
    """Node names are there and distinct, so that a trace can be joined with the graph."""
    names = [node.name for node in graph_of(part).node]
    assert all(names)
    assert len(set(names)) == len(names)


def test_the_transformer_is_an_mmdit():
    """Four joint blocks, the last without a context feed-forward, in several hundred nodes."""
    graph = graph_of("transformer")
    scopes = " ".join(
        entry.value
        for node in graph.node
        for entry in node.metadata_props
        if entry.key == "pkg.torch.onnx.name_scopes"
    )
    assert "transformer_blocks.3.attn.to_q" in scopes
    assert "transformer_blocks.2.ff_context" in scopes
    assert "transformer_blocks.3.ff_context" not in scopes
    assert 300 < len(graph.node) < 1000


def test_axes_are_dynamic_and_names_are_those_of_optimum():
    """Inputs and outputs have optimum-onnx's names, and the axes that vary are free."""
    expected = {
        "text_encoder": (["input_ids"], "text_embeds"),
        "text_encoder_2": (["input_ids"], "text_embeds"),
        "text_encoder_3": (["input_ids"], "last_hidden_state"),
        "transformer": (
            ["hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"],
            "out_hidden_states",
        ),
        "vae_decoder": (["latent_sample"], "sample"),
    }
    for part, (inputs, output) in expected.items():
        graph = graph_of(part)
        assert [value.name for value in graph.input] == inputs
        assert graph.output[0].name == output
        for value in graph.input:
            assert value.type.tensor_type.shape.dim[0].dim_param == "batch_size"


def test_the_index_lists_every_part():
    """model_index.json names the classes of diffusers and transformers."""
    index = json.loads((default_model_folder() / "model_index.json").read_text())
    assert index["_class_name"] == "StableDiffusion3Pipeline"
    assert index["transformer"] == ["diffusers", "SD3Transformer2DModel"]
    assert index["text_encoder_3"] == ["transformers", "T5EncoderModel"]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_tokenizers_are_made_the_same_again(torch_stack, tmp_path, model_folder):
    """The shipped tokenizer files are what the build makes, byte for byte."""
    from profiler.graph.tiny_model import write_clip, write_t5

    write_clip(tmp_path / "tokenizer", "<|endoftext|>")
    write_clip(tmp_path / "tokenizer_2", "!")
    write_t5(tmp_path / "tokenizer_3")
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(made) == 11
    for path in made:
        assert path.read_bytes() == (model_folder / path.relative_to(tmp_path)).read_bytes()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_build_does_not_delete_other_folders(torch_stack, tmp_path, capsys):
    """A folder that holds something else than a model is refused and stays."""
    from profiler.pipelines.tiny import build

    (tmp_path / "letter.txt").write_text("keep")
    with pytest.raises(SystemExit) as stop:
        build.main([str(tmp_path)])
    assert stop.value.code == 2
    assert "is not a model folder" in capsys.readouterr().err
    assert (tmp_path / "letter.txt").read_text() == "keep"
