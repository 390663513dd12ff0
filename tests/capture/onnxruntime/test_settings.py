"""How a session is set up, against the model and options that the test has made."""

from __future__ import annotations

from types import SimpleNamespace

from profiler.capture.onnxruntime.weights import session_settings
from profiler.trace import SubmoduleSettings
from profiler.trace.manifest_fields import WeightType
from tests.capture.onnx_pipelines import opened, weighted


def test_types_and_providers(tmp_path):
    """Weights are the initializer's 64 by 4 floats; the input's type, the provider's options."""
    session = opened(str(weighted(tmp_path)))
    found = session_settings(SimpleNamespace(session=session))
    assert found.weights == {"float32": WeightType(bytes=1024, share=1.0)}
    assert found.inputs == {"x": "float32"}
    assert dict(found.providers) == session.get_provider_options()


def test_sessions_that_are_not_open(tmp_path):
    """A part that opens its session later tells what its file does, one without a file nothing."""
    part = SimpleNamespace(open_session=None, model_path=weighted(tmp_path))
    found = session_settings(part)
    assert found == SubmoduleSettings(weights=found.weights)
    assert set(found.weights) == {"float32"}
    assert session_settings(SimpleNamespace(open_session=None)) == SubmoduleSettings()
