"""`export otlp`: what other tools read."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import profiler
from tests.command_line import run_command

RUN = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The OTLP of a sample run."""
    out = tmp_path_factory.mktemp("otlp") / "run.json"
    assert run_command("export", "otlp", RUN, "--out", out) == 0
    return json.loads(out.read_text("utf-8"))


def spans_of(document):
    return document["resourceSpans"][0]["scopeSpans"][0]["spans"]


def test_opentelemetry_reads_the_spans(document):
    """OpenTelemetry's own messages take every field, and hold each call with its time."""
    trace = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    from google.protobuf.json_format import ParseDict

    for span in spans_of(document):
        for name in ("traceId", "spanId", "parentSpanId"):  # hexadecimal in OTLP's JSON alone
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    data = ParseDict(document, trace.TracesData())
    spans = data.resource_spans[0].scope_spans[0].spans
    run = profiler.load(RUN)
    assert len(spans) == len(run.calls) + len(run.spans)
    times = {(s.start_time_unix_nano, s.end_time_unix_nano) for s in spans}
    for start, length in run.calls.select("start_ns", "duration_ns").rows():
        assert (start, start + length) in times
    assert {len(span.trace_id) for span in spans} == {16}
    assert len({span.span_id for span in spans}) == len(spans)


def test_spans_form_one_tree_with_the_names_of_the_conventions(tmp_path):
    """A pipeline call is the root and an inference span; each other span has a parent that is
    there; calls of the denoiser lie in their step, encoders are embeddings."""
    out = tmp_path / "run.json"
    assert run_command("export", "otlp", RUN, "--out", out) == 0
    spans = spans_of(json.loads(out.read_text("utf-8")))
    by_id = {span["spanId"]: span for span in spans}
    (root,) = [span for span in spans if "parentSpanId" not in span]
    named = {each["key"]: each["value"] for each in root["attributes"]}
    assert root["name"] == "generate_content tiny-sd3"
    assert named["gen_ai.operation.name"] == {"stringValue": "generate_content"}
    assert named["gen_ai.provider.name"] == {"stringValue": "diffusers"}
    assert named["gen_ai.request.model"] == {"stringValue": "tiny-sd3"}
    assert named["gen_ai.output.type"] == {"stringValue": "image"}
    parents = {s["name"]: by_id[s["parentSpanId"]]["name"] for s in spans if s is not root}
    assert parents["transformer"].startswith("step ")
    assert parents["embeddings text_encoder"] == "encode"
    assert parents["step 0"] == "denoise"
