"""Calls and spans as slices of their tracks, with the fields of our extension."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from profiler.events import (
    CALLS_TRACK,
    NO_ITERATION,
    NO_PIPELINE,
    PIPELINE_TRACK,
    PROFILER_TRACK,
    UNKNOWN,
    Call,
    Span,
    Track,
)
from profiler.trace import schema

__all__ = ["SpanSlice", "call_slice", "encodable", "span_slice"]


class SpanSlice(Struct, frozen=True):
    """A call or a span; `fields` are those of its extension. Slices of one `correlation` have one
    colour in the Perfetto UI, where names that differ in their digits would share theirs."""

    track: Track
    name: str
    start_ns: int
    duration_ns: int
    extension: Any
    fields: dict[str, Any]
    correlation: str = ""

    def event(self) -> bytes:
        """The serialized TrackEvent that begins the slice."""
        event = schema.TrackEvent()
        if self.correlation:
            event.correlation_id_str = encodable(self.correlation)
        message = event.Extensions[self.extension]
        for name, value in self.fields.items():
            if name == "inputs":
                for entry in value:
                    message.inputs.add(**entry)
            else:
                setattr(message, name, encodable(value) if isinstance(value, str) else value)
        data: bytes = event.SerializeToString()
        return data


def call_slice(call: Call) -> SpanSlice:
    """A call on the track of its device's calls."""
    inputs = [
        {"name": encodable(name), "shape": encodable(shape)}
        for name, shape in call.input_shapes.items()
    ]
    fields = {
        "index": call.index,
        "submodule": call.submodule,
        "stage": call.stage,
        "branch": call.branch,
        "step": call.step,
        "device": call.device,
        "ops_traced": call.ops_traced,
        "inputs": inputs,
        **_pipeline(call.pipeline),
    }
    if call.iteration != NO_ITERATION:
        fields["iteration"] = call.iteration
    if call.device_duration_ns != UNKNOWN:
        fields["device_lag_ns"] = call.device_lag_ns
        fields["device_duration_ns"] = call.device_duration_ns
    track = Track(call.device, CALLS_TRACK, "other")
    return SpanSlice(
        track,
        call.submodule,
        call.start_ns,
        call.duration_ns,
        schema.CALL,
        fields,
        correlation=call.submodule,
    )


def span_slice(span: Span, device: str) -> SpanSlice:
    """A pipeline, stage or step on the pipeline track of the root `device`; our own work on a track
    beside it, for it need not nest with them."""
    fields: dict[str, Any] = {"kind": span.kind, "stage": span.stage, "step": span.step}
    fields |= _pipeline(span.pipeline)
    own = span.kind == "profiler"
    track = Track(device, PROFILER_TRACK if own else PIPELINE_TRACK, "other")
    return SpanSlice(track, span.name, span.start_ns, span.duration_ns, schema.SPAN, fields)


def _pipeline(number: int) -> dict[str, int]:
    """The field of a pipeline call's number; what lies in none has none."""
    return {} if number == NO_PIPELINE else {"pipeline": number}


def encodable(text: str) -> str:
    """`text` without lone surrogates, which JSON may hold and UTF-8 may not."""
    return text.encode("utf-8", "replace").decode()
