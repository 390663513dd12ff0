"""Nodes of a graph that nobody has run, as the commands that they would be."""

from profiler.compare import operations
from profiler.compare.operations import PlainNode, node_table
from profiler.run import CALLS, COMMANDS
from profiler.run.columns import checked

_NODES = [
    PlainNode(
        "transformer/blocks.0/attn/MatMul",
        "MatMul",
        "MatMul",
        "compute",
        "float[2,3] float[3,4] -> float[2,4]",
    ),
    PlainNode("transformer/blocks.0/attn/Shape", "Shape", "Shape", "copy", ""),
]


def test_nodes_have_every_column_that_commands_have(monkeypatch):
    """What sorts commands may look at any declared column: none is missing, of another type or
    null where a run's is not, whatever columns are declared later."""
    given = []

    def kinds_of(calls, commands, *rest, **options):
        given.append((checked(calls, CALLS), checked(commands, COMMANDS)))
        return found(calls, commands, *rest, **options)

    found = operations.kinds_of
    monkeypatch.setattr(operations, "kinds_of", kinds_of)
    table = node_table("transformer", _NODES, {})
    ((calls, commands),) = given
    assert (len(calls), len(commands)) == (1, 2)
    assert commands["op_type"].to_list() == ["MatMul", "Shape"]
    assert table["flops"].to_list() == [2 * 2 * 3 * 4, 0]
    assert table["role"].to_list()[1] == "data_movement"
