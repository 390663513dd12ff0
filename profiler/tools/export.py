"""Export a run as OpenTelemetry traces (OTLP JSON).

    otlp_document(run)      # {"resourceSpans": [...]}

A pipeline call is a trace; its stages, steps and calls are spans below it. Names follow the
semantic conventions for generative AI (opentelemetry.io/docs/specs/semconv/gen-ai); other
attributes have the prefix `profile_sd3.`. The JSON is protobuf's, except that ids are
hexadecimal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from profiler.run.run import Run
from profiler.trace import __version__

# --- A run as OpenTelemetry traces: the JSON of OTLP, which collectors and backends read from
# files.
#
# A pipeline call is a trace: its stages, steps and calls are the spans below it. Names follow the
# semantic conventions for generative AI if they have one
# (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/, "Development"): a pipeline call
# is an inference span, `generate_content MODEL` of kind INTERNAL, since the model runs in the
# process; a call of a text encoder is `embeddings`. Other names have the prefix `profile_sd3.`. The
# JSON is protobuf's, except that ids are hexadecimal
# (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).


_INTERNAL = 1  # SPAN_KIND_INTERNAL
_EPOCH_FROM = 946_684_800_000_000_000  # ns, 2000-01-01
_FRAMEWORKS = ("diffusers", "transformers", "onnxruntime", "torch")

_Ids = dict[tuple[str, int, str, int], str]


def is_of_epoch(run: Run) -> bool:
    """Whether times of the run count from 1970, as OTLP requires."""
    return all(start >= _EPOCH_FROM for start in run.calls["start_ns"].head(1))


def otlp_document(run: Run) -> dict[str, Any]:
    """Return the run as `TracesData`, in JSON values."""
    ids: _Ids = {}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(_resource(run))},
                "scopeSpans": [
                    {
                        "scope": {"name": "profile-sd3", "version": __version__},
                        "spans": [*_of_spans(run, ids), *_of_calls(run, ids)],
                    }
                ],
            }
        ]
    }


def _resource(run: Run) -> dict[str, Any]:
    return {
        "service.name": run.info.pipeline or run.run_id,
        "profile_sd3.run_id": run.run_id,
        "profile_sd3.producer": run.info.producer,
        "profile_sd3.clock": str(run.info.clocks.clock or "unknown"),
    }


def _of_spans(run: Run, ids: _Ids) -> Iterator[dict[str, Any]]:
    """The spans of pipeline calls, stages and steps, parents first; stores their ids in `ids`."""
    order = {"pipeline": 0, "stage": 1, "step": 2}
    rows = [row for row in run.spans.iter_rows(named=True) if row["kind"] in order]
    for row in sorted(rows, key=lambda each: (order[each["kind"]], each["start_ns"])):
        kind, pipeline = row["kind"], row["pipeline"]
        stage = row["stage"] or ""
        key = (kind, pipeline, stage, row["step"])
        own = _id(8, run.run_id, *key, row["start_ns"])
        ids.setdefault(key, own)
        name, attributes = row["name"], _of_place(row)
        if kind == "pipeline":
            name = f"generate_content {run.info.model or name}"
            attributes |= _gen_ai(run)
        yield _span(run, row, name, own, _parent(ids, kind, pipeline, stage, -1), attributes)


def _of_calls(run: Run, ids: _Ids) -> Iterator[dict[str, Any]]:
    for row in run.calls.iter_rows(named=True):
        stage, embeds = row["stage"] or "", row["submodule"].startswith("text_encoder")
        attributes = {
            **({"gen_ai.operation.name": "embeddings"} if embeds else {}),
            **({"gen_ai.provider.name": _provider(run)} if embeds else {}),
            **_of_place(row),
            "profile_sd3.submodule": row["submodule"],
            "profile_sd3.branch": row["branch"] or "",
            "profile_sd3.device": row["device"] or "",
            "profile_sd3.input_shapes": row["input_shapes"] or "",
        }
        parent = _parent(ids, "call", row["pipeline"], stage, row["step"])
        own = _id(8, run.run_id, "call", row["call"])
        name = f"embeddings {row['submodule']}" if embeds else str(row["submodule"])
        yield _span(run, row, name, own, parent, attributes)


def _parent(ids: _Ids, kind: str, pipeline: int, stage: str, step: int) -> str:
    """The id of a span's parent: for a call its step, else its stage, else the pipeline call."""
    looked = {
        "pipeline": (),
        "stage": (("pipeline", pipeline, "", -1),),
        "step": (("stage", pipeline, stage, -1), ("pipeline", pipeline, "", -1)),
        "call": (
            ("step", pipeline, stage, step),
            ("stage", pipeline, stage, -1),
            ("pipeline", pipeline, "", -1),
        ),
    }
    return next((ids[key] for key in looked[kind] if key in ids), "")


def _span(
    run: Run,
    row: Mapping[str, Any],
    name: str,
    own: str,
    parent: str,
    attributes: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "traceId": _id(16, run.run_id, "trace", row["pipeline"]),
        "spanId": own,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(max(row["start_ns"], 0)),
        "endTimeUnixNano": str(max(row["start_ns"] + row["duration_ns"], 0)),
        "attributes": _attributes(attributes),
    }


def _gen_ai(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.provider.name": _provider(run),
    }
    if run.info.model:
        found["gen_ai.request.model"] = run.info.model
    made = run.info.generations
    if made and all(one.width and not one.frames for one in made):
        found["gen_ai.output.type"] = "image"
    return found


def _provider(run: Run) -> str:
    """Return the framework that runs the model: the conventions allow custom names."""
    return next((name for name in _FRAMEWORKS if name in run.info.versions), run.info.producer)


def _of_place(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {"profile_sd3.stage": row["stage"] or ""}
    if row["step"] is not None and row["step"] >= 0:
        found["profile_sd3.step"] = row["step"]
    return found


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes as `KeyValue`, without empty texts."""
    return [
        {
            "key": key,
            "value": {"intValue": str(value)}
            if isinstance(value, int)
            else {"stringValue": str(value)},
        }
        for key, value in values.items()
        if value != ""
    ]


def _id(size: int, *of: object) -> str:
    """Return an id of `size` bytes in hexadecimal, always the same for the same span."""
    text = "\0".join(map(str, of)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).digest()[:size].hex()
