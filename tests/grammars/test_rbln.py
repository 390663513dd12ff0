"""The grammars of RBLN's command names."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from profiler.grammars.names import (
    UNNAMED,
    CommandName,
    parse_command_name,
)

numbers = st.integers(0, 10**18 - 1)
indices = st.integers(0, 10**9 - 1)
layers = st.one_of(
    st.text(min_size=1),
    st.from_regex(r"(W[0-9]+_|i[0-9]+_|[0-9]+_)*[a-z_0-9]+", fullmatch=True),
    st.lists(st.sampled_from(["conv_1", "relu_2", "SDPA"]), min_size=1).map(
        lambda names: f"fused({'+'.join(names)})"
    ),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("12_linear_196_0", CommandName("linear_196", 0, 12)),
        ("0_paged_attn_prefill_3", CommandName("paged_attn_prefill", 3, 0)),
        ("12_W3_linear_196_0", CommandName("linear_196", 0, 12, 3)),
        ("i0_12_W3_linear_196_0", CommandName("linear_196", 0, 12, 3, 0)),
        ("i4_12_linear_196_0", CommandName("linear_196", 0, 12, UNNAMED, 4)),
        ("i4_12_W0_fused(a_1+b_2)_7", CommandName("fused(a_1+b_2)", 7, 12, 0, 4)),
        ("1_a\nb_2", CommandName("a\nb", 2, 1)),
        ("1__2", None),
        ("linear_196_0", None),
        ("12_linear", None),
        ("i_12_W3_x_0", None),
        ("decoder", None),
        ("", None),
        (f"1_x_{'9' * 10}", None),
        (f"{'9' * 5_000}_x_0", None),
        ("1_x_٣", None),  # a digit, but not an ASCII one
    ],
)
def test_known_names(name: str, expected: CommandName | None) -> None:
    """Names of both versions are taken apart, and names of neither are left alone."""
    assert parse_command_name(name) == expected


def written(command: CommandName) -> str:
    """The name of a command as the profiler writes it."""
    instance = f"i{command.instance}_" if command.instance != UNNAMED else ""
    workload = f"W{command.workload}_" if command.workload != UNNAMED else ""
    return f"{instance}{command.sequence}_{workload}{command.layer}_{command.command_index}"


@given(st.builds(CommandName, layers, indices, numbers, numbers, st.just(UNNAMED) | numbers))
def test_round_trip_0_12(command: CommandName) -> None:
    """Every command of 0.12 with a workload is read back, with an instance or without one."""
    assert parse_command_name(written(command)) == command


@given(
    st.builds(CommandName, layers, indices, numbers, st.just(UNNAMED), st.just(UNNAMED) | numbers)
)
def test_round_trip_of_host_commands(command: CommandName) -> None:
    """Names of 0.11 and those of host commands have no workload, and are read back."""
    assume(not command.layer.startswith("W"))
    assert parse_command_name(written(command)) == command


@given(st.text())
def test_any_text(name: str) -> None:
    """No text makes parsing fail, and what is parsed gives the name back but for leading zeros."""
    command = parse_command_name(name)
    if command is not None:
        again = parse_command_name(written(command))
        assert again == command


@pytest.mark.parametrize(
    ("layer", "operators", "op_type"),
    [
        ("linear_196", ("linear_196",), "linear"),
        ("conv_2d_3_1", ("conv_2d_3_1",), "conv_2d"),
        ("SDPA", ("SDPA",), "SDPA"),
        ("_1", ("_1",), "_1"),
        ("fused(conv_1+relu_2)", ("conv_1", "relu_2"), "fused(conv+relu)"),
        ("fused(add(a+b)_1+relu_2)", ("add(a+b)_1", "relu_2"), "fused(add(a+b)+relu)"),
        ("fused()", ("",), "fused()"),
        ("fused_3", ("fused_3",), "fused"),
    ],
)
def test_operators_of_a_layer(layer: str, operators: tuple[str, ...], op_type: str) -> None:
    """A fused layer names its operators, and the kind of a layer is its name without numbers."""
    command = CommandName(layer, 0, 0)
    assert (command.operators, command.op_type) == (operators, op_type)
