"""Whether attention masks causally, from the arguments in torch's events, against torch."""

from __future__ import annotations

import pytest

from profiler.kineto.operators import CAUSAL_PLACES, is_attention, is_causal, text_mark


@pytest.mark.parametrize(
    ("operator", "printed", "expected"),
    [
        ("aten::scaled_dot_product_attention", '["","","","","0.","True","0.125","False"]', True),
        ("aten::scaled_dot_product_attention", '["","","","","0.","False","0.125","True"]', False),
        ("aten::_scaled_dot_product_flash_attention", '["","","","0.","True","False"]', True),
        ("aten::_efficient_attention_forward", '["","","","","","","64","64","0.","1"]', True),
        ("aten::_efficient_attention_forward", '["","","","","","","64","64","0.","0"]', False),
        (
            "aten::_cudnn_attention_forward",
            '["","","","","","","77","77","False","0.","True"]',
            True,
        ),
        (
            "aten::_cudnn_attention_forward",
            '["","","","","","","77","77","True","0.","False"]',
            False,
        ),
        ("aten::scaled_dot_product_attention", '["","",""]', False),
        ("aten::scaled_dot_product_attention", "", False),
        ("aten::scaled_dot_product_attention", "7", False),
        ("aten::mm", '["True","True","True","True","True","True"]', False),
    ],
)
def test_mark(operator, printed, expected):
    """It stands where the operator has it; what does not tell, or cannot be read, marks nothing."""
    assert text_mark(operator, (), printed.encode()) == (" causal" if expected else "")


def test_without_arguments():
    """An operator that tells nothing is not taken to be causal."""
    assert not is_causal("aten::scaled_dot_product_attention", [])
    assert is_attention("aten::scaled_dot_product_attention")
    assert not is_attention("aten::mm")


@pytest.mark.torch
@pytest.mark.parametrize("operator", [name for name in CAUSAL_PLACES if name.startswith("aten::")])
def test_places_are_those_of_torch(operator):
    """The argument at the place is the one that torch's own schema calls so."""
    torch = pytest.importorskip("torch")
    schema = getattr(torch.ops.aten, operator.removeprefix("aten::")).default._schema
    assert schema.arguments[CAUSAL_PLACES[operator]].name in ("is_causal", "custom_mask_type")
