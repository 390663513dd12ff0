"""Parts that sources hold without keeping them."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from profiler.capture.operator_source import WeakPart, when_gone
from profiler.capture.pipelines.submodules import entries


class Part:
    def __init__(self):
        self.session = "own"
        self.pipeline = self  # in a cycle, as a part that knows its pipeline


def test_a_part_that_is_there():
    """Reading, setting and deleting reach the part itself; what it lacks is lacking."""
    part = Part()
    weak = WeakPart(part)
    weak.session = "profiled"
    assert (part.session, weak.session, hasattr(weak, "open_session")) == ("profiled",) * 2 + (
        False,
    )
    del weak.session
    assert not hasattr(part, "session")


def test_a_part_that_goes():
    """Nothing keeps it; it is told of once; then reading finds nothing and setting is dropped."""
    part, told = Part(), []
    weak, gone = WeakPart(part), weakref.ref(part)
    when_gone(part, lambda: told.append("gone"))
    del part
    gc.collect()
    assert (gone(), told) == (None, ["gone"])
    weak.session = "own"
    del weak.session
    with pytest.raises(AttributeError):
        weak.session  # noqa: B018


def test_calling_it_off():
    """What was called off is not told, and may be called off again."""
    part, told = Part(), []
    call_off = when_gone(part, lambda: told.append("gone"))
    call_off()
    call_off()
    del part
    gc.collect()
    assert told == []


def test_what_knows_no_weak_references():
    """Such a part is kept, and never told of."""
    part, told = (1, 2), []
    weak = WeakPart(part)
    when_gone(part, lambda: told.append("gone"))()
    assert (weak.count(2), told) == (1, [])


@pytest.mark.parametrize(
    ("encoder", "methods"), [(Part(), ["encode", "decode"]), (None, ["decode"])]
)
def test_a_vae_whose_encoder_may_be_missing(encoder, methods):
    """optimum's VAE has both methods, whatever parts it has: only those with a part are entries."""
    vae = SimpleNamespace(encoder=encoder, decoder=Part(), encode=print, decode=print)
    assert [entry.method for entry in entries(SimpleNamespace(vae=vae))] == methods
