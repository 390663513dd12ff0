"""Text encoders as graphs: CLIP, T5 and Qwen2.5-VL, under the names that optimum-onnx gives."""

from __future__ import annotations

from typing import Any

from profiler.graph.export.options import StaticSizes
from profiler.graph.export.part_graph import PartGraph, Trial, free_sizes, shapes_of

__all__ = ["clip", "qwen", "t5"]


def clip(module: Any, static: StaticSizes, *, pooled: str) -> PartGraph:
    """A CLIP text encoder: ids int64 [batch_size, 77] → `pooled` (`text_embeds` with the
    projection, `pooler_output` without), the last hidden state and all of them."""
    config = module.config
    original = module.forward

    def forward(input_ids: Any) -> tuple[Any, ...]:
        found = original(input_ids=input_ids, output_hidden_states=True)
        return (getattr(found, pooled), found.last_hidden_state, *found.hidden_states)

    layers = range(config.num_hidden_layers + 1)
    return _of_ids(
        module,
        forward,
        (pooled, "last_hidden_state", *(f"hidden_states.{i}" for i in layers)),
        trials=free_sizes({"batch_size": (2, 1)}, {"batch_size": static.batch}),
        axes=(static.batch or "batch_size", config.max_position_embeddings),
    )


def t5(module: Any, static: StaticSizes) -> PartGraph:
    """T5's encoder: ids int64 [batch_size, sequence_length] → its last hidden state."""
    original = module.forward

    def forward(input_ids: Any) -> tuple[Any, ...]:
        return (original(input_ids=input_ids, return_dict=False)[0],)

    return _of_ids(
        module,
        forward,
        ("last_hidden_state",),
        trials=_text_trials(static),
        axes=(static.batch or "batch_size", static.sequence or "sequence_length"),
    )


def qwen(module: Any, static: StaticSizes) -> PartGraph:
    """Qwen2.5-VL on text alone: ids and mask int64 [batch_size, sequence_length] → its last
    hidden state, normalized; what QwenImagePipeline takes as `hidden_states[-1]`."""
    language_model = module.model.language_model

    def forward(input_ids: Any, attention_mask: Any) -> tuple[Any, ...]:
        found = language_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        return (found.last_hidden_state,)

    def reference(_: Trial, tensors: Any) -> tuple[Any, ...]:
        found = original(**tensors, output_hidden_states=True, use_cache=False)
        return (found.hidden_states[-1],)

    original = module.forward
    axes = (static.batch or "batch_size", static.sequence or "sequence_length")
    return PartGraph(
        module=module,
        forward=forward,
        inputs={"input_ids": axes, "attention_mask": axes},
        outputs=("last_hidden_state",),
        draw=lambda random, sizes: _ids_and_mask(module, random, axes, sizes),
        trials=_text_trials(static),
        reference=reference,
        notes=("text alone: the encoder's vision tower is left out",),
    )


def _text_trials(static: StaticSizes) -> tuple[Trial, ...]:
    return free_sizes(
        {"batch_size": (2, 1), "sequence_length": (12, 7)},
        {"batch_size": static.batch, "sequence_length": static.sequence},
    )


def _of_ids(
    module: Any,
    forward: Any,
    outputs: tuple[str, ...],
    *,
    trials: tuple[Trial, ...],
    axes: tuple[int | str, ...],
) -> PartGraph:
    def draw(random: Any, sizes: Trial) -> dict[str, Any]:
        return {"input_ids": _ids(module, random, shapes_of({"ids": axes}, sizes)["ids"])}

    return PartGraph(
        module=module,
        forward=forward,
        inputs={"input_ids": axes},
        outputs=outputs,
        draw=draw,
        trials=trials,
    )


def _ids(module: Any, random: Any, shape: tuple[int, ...]) -> Any:
    """Ids of the vocabulary; the end of a text in each row, where CLIP pools."""
    import torch

    config = getattr(module.config, "text_config", module.config)
    ids = random.integers(0, config.vocab_size, size=shape)
    end = getattr(config, "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < config.vocab_size:
        ids[:, shape[1] // 2] = end
    return torch.from_numpy(ids)


def _ids_and_mask(
    module: Any, random: Any, axes: tuple[int | str, ...], sizes: Trial
) -> dict[str, Any]:
    """The last row's text ends before the others do."""
    import torch

    shape = shapes_of({"ids": axes}, sizes)["ids"]
    mask = torch.ones(shape, dtype=torch.int64)
    mask[-1, shape[1] - shape[1] // 3 :] = 0
    return {"input_ids": _ids(module, random, shape), "attention_mask": mask}
