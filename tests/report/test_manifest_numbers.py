"""Whatever a manifest holds where a number should be: analyses, reports and predictions of the run
are made all the same, or one sentence refuses it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from copy import deepcopy

import pytest
from rich.console import Console

from profiler.analysis import with_roles
from profiler.analysis.analyze import analyze
from profiler.compare.measure import measure
from profiler.errors import InputError
from profiler.prediction import Scenario
from profiler.prediction.predict import predict
from profiler.report import print_report, to_json, write_html
from profiler.tools.sources import load
from profiler.trace import read_manifest
from tests.report.rendered import report_of
from tests.runs import write_tiny_bundle

HOSTILE = (
    10**400,
    -(10**400),
    10**19,
    1 << 63,
    (1 << 63) - 1,
    (1 << 62) - 1,
    (1 << 53) - 1,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    -1,
    0,
    True,
    None,
    "9",
    [[9]],
    {"a": {"b": 1}},
)
_INTERVAL = {"call_ns": 5e6, "call_low_ns": 4e6, "call_high_ns": 6e6}
_OVERHEAD = {
    "traced_ns": 1_000,
    "untraced_ns": 496,
    "untraced_low_ns": 396,
    "untraced_high_ns": 596,
    "hooks_ns": 4,
    "operator_events": 9,
    "operator_event_ns": 0.5,
    "operator_event_low_ns": 0.4,
    "operator_event_high_ns": 0.6,
    "operators_ns": 500,
    "operators_low_ns": 400,
    "estimated_events": 9,
    "share": 0.4,
    "noisy": True,
    "backpressure_ns": 10,
    "conversion_ns": 2_000_000,
    "measured": {"transformer": _INTERVAL},
    "too_few": {"vae": {"traced_calls": 1, "untraced_calls": 2}},
}
_ATTRIBUTED = {"attributed_ns": 99, "total_ns": 100, "share": 0.99}


def _info() -> dict:
    """Every number that is read from a manifest, as fields of `RunInfo`."""
    names = ("text_encoder", "transformer", "vae")
    size = {"weight_bytes": 10**6, "shared_weight_bytes": 10}
    known = {**size, "overhead_ratio": {"factor": 0.9, "low": 0.8, "high": 0.95}}
    devices = ("cpu:0", "rbln:0", "rbln:1")
    return {
        "hardware": {"cpu": "Example CPU", "cores": 2, "memory_bytes": 10**10},
        "devices": {
            name: {"cores": [0, 1], "memory_bytes": 10**10, "weight_bytes": 10**6}
            for name in devices
        },
        "submodules": {name: {"device": "rbln:0", **known} for name in names},
        "settings": {"steps": 2, "guidance_scale": 7.0},
        "pipeline_settings": {"0": {"steps": 2}, "1": {"steps": 3}},
        "overhead": _OVERHEAD,
        "warmup": {"runs": 1, "duration_ns": 800, "calls": 4},
        "attribution": {"transformer": _ATTRIBUTED, "vae": dict(_ATTRIBUTED)},
    }


def _places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Where the numbers of a document are."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        if isinstance(part, (dict, list)):
            yield from _places(part, (*path, key))
        elif isinstance(part, (int, float)) and not isinstance(part, bool):
            yield (*path, key)


def _put(document: dict, place: tuple, value: object) -> None:
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = value


def _report_everything(bundle) -> None:
    """Analyze, in all forms, compare and predict what is in `bundle`."""
    run = load(bundle)
    analysis = analyze(run)
    print_report(Console(file=io.StringIO()), report_of(analysis, top=5))
    json.loads(to_json(analysis), parse_constant=pytest.fail)
    write_html(with_roles(run, analysis.kinds, analysis.kind_roles), analysis, bundle / "x.html")
    measure(run)
    predict(run, analysis, Scenario(steps=4))
    predict(run, analysis, Scenario(concurrency=2))


def _refusal(bundle) -> str:
    """The reader's sentence, "" where it reads the manifest."""
    try:
        read_manifest(bundle / "manifest.json")
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: f"{value!r:.12}")
def test_one_at_a_time(value, tmp_path):
    """One hostile value among sound ones, in the place of each number: the manifest is refused, or
    the value is one that a measurement can have, and everything is reported."""
    bundle = write_tiny_bundle(tmp_path, **_info())
    path = bundle / "manifest.json"
    sound = json.loads(path.read_text())
    places = [place for place in _places(sound) if place[0] not in ("calls", "files")]
    accepted = deepcopy(sound)
    for place in places:
        document = deepcopy(sound)
        _put(document, place, value)
        path.write_text(json.dumps(document))
        refusal = _refusal(bundle)
        assert "\n" not in refusal
        if not refusal:
            _put(accepted, place, value)
    if accepted == sound:  # nothing was: what is reported of sound numbers has other tests
        return
    path.write_text(json.dumps(accepted))
    _report_everything(bundle)
