"""Export of the tiny model's torch modules to ONNX graphs with torch's dynamo exporter.

Names of inputs and outputs are those of optimum-onnx. Every axis that a caller may choose is
dynamic. Of the exporter's metadata the module path and class of each node stay; what holds source
text or local paths (`pkg.torch.onnx.stack_trace`) goes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch

from profiler.pipelines.tiny.architecture import TinyParts
from profiler.pipelines.tiny.vocabulary import VOCABULARY_SIZE

__all__ = ["KEPT_METADATA", "OPSET", "export_parts"]

OPSET = 18

KEPT_METADATA = frozenset(
    {
        "namespace",
        "pkg.onnxscript.rewriter.rule_name",
        "pkg.torch.onnx.class_hierarchy",
        "pkg.torch.onnx.name_scopes",
    }
)
"""Node metadata that stays in the shipped graphs."""


@dataclass(frozen=True)
class _Graph:
    """What one export needs: the module, its forward under fixed names, examples, axis names."""

    module: torch.nn.Module
    forward: Callable[..., Any]
    inputs: Mapping[str, torch.Tensor]
    axes: Mapping[str, Mapping[int, str]]
    outputs: tuple[str, ...]


def export_parts(parts: TinyParts, folder: Path) -> None:
    """Write `<part>/model.onnx` for every part below `folder`."""
    _export(_clip(parts.text_encoder), folder / "text_encoder")
    _export(_clip(parts.text_encoder_2), folder / "text_encoder_2")
    _export(_t5(parts), folder / "text_encoder_3")
    _export(_transformer(parts), folder / "transformer")
    _export(_vae_decoder(parts), folder / "vae_decoder")


def _clip(model: Any) -> _Graph:
    def forward(input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = original(input_ids=input_ids, output_hidden_states=True)
        return (found.text_embeds, found.last_hidden_state, *found.hidden_states)

    original = model.forward
    layers = range(model.config.num_hidden_layers + 1)
    return _Graph(
        module=model,
        forward=forward,
        inputs={"input_ids": _example_ids(model.config.max_position_embeddings)},
        axes={"input_ids": {0: "batch_size"}},
        outputs=("text_embeds", "last_hidden_state", *(f"hidden_states.{i}" for i in layers)),
    )


def _t5(parts: TinyParts) -> _Graph:
    def forward(input_ids: torch.Tensor) -> tuple[torch.Tensor]:
        return (original(input_ids=input_ids, return_dict=False)[0],)

    original = parts.text_encoder_3.forward
    return _Graph(
        module=parts.text_encoder_3,
        forward=forward,
        inputs={"input_ids": _example_ids(100)},
        axes={"input_ids": {0: "batch_size", 1: "sequence_length"}},
        outputs=("last_hidden_state",),
    )


def _transformer(parts: TinyParts) -> _Graph:
    def forward(
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        pooled_projections: torch.Tensor,
        timestep: torch.Tensor,
    ) -> tuple[torch.Tensor]:
        found = original(
            hidden_states=hidden_states,
            encoder_hidden_states=encoder_hidden_states,
            pooled_projections=pooled_projections,
            timestep=timestep,
            return_dict=False,
        )
        return (found[0],)

    original = parts.transformer.forward
    config = parts.transformer.config
    return _Graph(
        module=parts.transformer,
        forward=forward,
        inputs={
            "hidden_states": torch.zeros(2, config.in_channels, 32, 24),
            "encoder_hidden_states": torch.zeros(2, 150, config.joint_attention_dim),
            "pooled_projections": torch.zeros(2, config.pooled_projection_dim),
            "timestep": torch.full((2,), 500.0),
        },
        axes={
            "hidden_states": {0: "batch_size", 2: "height", 3: "width"},
            "encoder_hidden_states": {0: "batch_size", 1: "sequence_length"},
            "pooled_projections": {0: "batch_size"},
            "timestep": {0: "batch_size"},
        },
        outputs=("out_hidden_states",),
    )


def _vae_decoder(parts: TinyParts) -> _Graph:
    def forward(latent_sample: torch.Tensor) -> tuple[torch.Tensor]:
        return (parts.vae.decode(z=latent_sample, return_dict=False)[0],)

    channels = parts.vae.config.latent_channels
    return _Graph(
        module=parts.vae,
        forward=forward,
        inputs={"latent_sample": torch.zeros(2, channels, 32, 24)},
        axes={"latent_sample": {0: "batch_size", 2: "latent_height", 3: "latent_width"}},
        outputs=("sample",),
    )


def _example_ids(length: int) -> torch.Tensor:
    """Return ids int64 [2, length] to trace with; their values do not matter."""
    return torch.arange(2 * length).reshape(2, length) % VOCABULARY_SIZE


def _export(graph: _Graph, folder: Path) -> None:
    """Write `folder`/model.onnx with weights inside; the module's forward is put back after it."""
    graph.module.forward = graph.forward
    try:
        with torch.no_grad():
            program = torch.onnx.export(
                graph.module,
                kwargs=dict(graph.inputs),
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes={name: dict(axes) for name, axes in graph.axes.items()},
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    finally:
        del graph.module.forward
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    model = program.model_proto
    _clean(model)
    onnx.checker.check_model(model, full_check=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))


def _clean(model: onnx.ModelProto) -> None:
    """Remove metadata that is not in `KEPT_METADATA`, wherever the format allows any."""
    graph = model.graph
    for node in graph.node:
        kept = [entry for entry in node.metadata_props if entry.key in KEPT_METADATA]
        kept.sort(key=lambda entry: entry.key)
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.ClearField("doc_string")
    for group in (graph.initializer, graph.value_info, graph.input, graph.output):
        for value in group:
            value.ClearField("metadata_props")
            value.ClearField("doc_string")
    for owner in (graph, model):
        owner.ClearField("metadata_props")
        owner.ClearField("doc_string")
