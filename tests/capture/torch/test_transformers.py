"""Models of transformers by themselves: Whisper and CLIP. `generate` of a language model is in
`tests/capture/pipelines/test_components.py`."""

from __future__ import annotations

import pytest

import profiler

torch = pytest.importorskip("torch", reason="needs the torch extra")
transformers = pytest.importorskip("transformers", reason="needs the torch extra")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # transformers' own
]

NEW = 4  # tokens


def recorded(tmp_path, model, work, ops="none"):
    """What `work` gives without and with capture, and the run."""
    with torch.no_grad():
        without = work()
        with profiler.profile(model, out=tmp_path, ops=ops) as profiled:
            given = work()
    assert torch.equal(without, given)
    run = profiler.load(profiled.path)
    assert run.drops == ()
    return run


def whisper():
    """A model with an encoder and a decoder, and what generates with it."""
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=64,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=32,
        decoder_start_token_id=3,
        bos_token_id=0,
        eos_token_id=63,
        pad_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    model.generation_config.forced_decoder_ids = None
    model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = None
    sound = torch.linspace(-1, 1, 8 * 40).reshape(1, 8, 40)
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    return model, lambda: model.generate(sound, **options)


def counting(parts):
    """How often each of these is called from now on."""
    counts = dict.fromkeys(parts, 0)

    def hook(name):
        def count(*_):
            counts[name] += 1

        return count

    for name, part in parts.items():
        part.register_forward_pre_hook(hook(name))
    return counts


def test_whisper(tmp_path):
    """The encoder once, the decoder once a token: given as parts, each is a submodule."""
    model, work = whisper()
    parts = {"encoder": model.model.encoder, "decoder": model.model.decoder}
    counts = counting(parts)
    run = recorded(tmp_path, parts, work)
    found = run.calls["submodule"].to_list()
    assert found == ["encoder", *["decoder"] * NEW]
    assert {name: found.count(name) * 2 for name in parts} == counts


def test_an_encoder_that_generate_calls_past_forward(tmp_path):
    """Given whole, the model has a call for its encoder, and a pass of its own for each token; the
    operators of either lie in that part of it."""
    model, work = whisper()
    counts = counting({"encoder": model.model.encoder, "model": model})
    run = recorded(tmp_path, {"whisper": model}, work, ops="all")
    assert counts == {"encoder": 2, "model": 2 * NEW}
    assert run.calls.select("submodule", "stage", "iteration").rows() == [
        ("whisper", "encode", -1),
        *(("whisper", "run", token) for token in range(NEW)),
    ]
    assert run.calls["ops_traced"].all()
    parts = {
        (call, layer.split(".")[1])
        for call, layer in run.commands.select("call", "layer").rows()
        if layer.startswith("model.")
    }
    assert parts == {(0, "encoder"), *((call, "decoder") for call in range(1, NEW + 1))}
    assert not model._forward_hooks
    assert not model.model.encoder._forward_hooks


def test_an_encoder_within_forward_is_no_call_of_its_own(tmp_path):
    """Called with sound and tokens, the model runs its encoder itself: that is one call."""
    model, _ = whisper()
    given = {"input_features": torch.zeros(1, 8, 40), "decoder_input_ids": torch.tensor([[3]])}
    run = recorded(tmp_path, {"whisper": model}, lambda: model(**given).logits)
    assert run.calls.select("submodule", "stage").rows() == [("whisper", "run")]


@pytest.mark.parametrize("method", ["get_image_features", "get_text_features"])
def test_clip(tmp_path, method):
    """A way in that is not `forward`: one call, in stage encode."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 64, "eos_token_id": 63},
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    model = transformers.CLIPModel(config).eval()
    given = {
        "get_image_features": {"pixel_values": torch.ones(1, 3, 16, 16)},
        "get_text_features": {"input_ids": torch.tensor([[1, 2, 63]])},
    }[method]

    def work():
        found = getattr(model, method)(**given)
        return getattr(found, "pooler_output", found)

    run = recorded(tmp_path, {"clip": model}, work)
    assert run.calls.select("submodule", "stage").rows() == [("clip", "encode")]
