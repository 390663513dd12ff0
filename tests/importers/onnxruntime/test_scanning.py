"""Events that the core reads as columns, against msgspec's events of the same text."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.ort_profiles import Args, Event
from profiler.trace import _core
from tests.examples import examples
from tests.fuzz import profiles as seeds

FUZZ = Path(__file__).parents[2] / "fuzz"
NO_TIME = Event("").ts
DECODER = msgspec.json.Decoder(list[Event])
SUFFIX = "_kernel_time"

_TEXTS = st.one_of(
    st.sampled_from(
        ["", "0", "64", "9" * 18, "9" * 19, "-1", "٣", 'a"\\/\b\f\n\r\t', "\U0001f600"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        _TEXTS,
    ),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(_TEXTS, parts, max_size=3),
    max_leaves=8,
)
_NAMES = _TEXTS | _TEXTS.map(lambda text: text + SUFFIX)
_NAMES |= st.sampled_from(["model_run", "profile_truncated"])
_TEXT_ARGS = [name for name, one in Args.__annotations__.items() if one == "str"]
_ARGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(_TEXT_ARGS, _TEXTS),
        **dict.fromkeys(("input_type_shape", "output_type_shape", "stream", "other"), _VALUES),
    },
)
_TIMES = st.integers(-(1 << 50) - 1, (1 << 50) + 1)
_EVENTS = st.fixed_dictionaries(
    {"name": _NAMES},
    optional={
        "cat": st.sampled_from(["Node", "Node", "Session", "Kernel"]) | _TEXTS,
        "args": _ARGS | st.none(),
        "ts": _TIMES,
        "dur": _TIMES | st.integers(0, 50),
        "tid": st.integers(-(1 << 62) - 1, 1 << 62) | st.integers(0, 9),
        "ph": _VALUES,
    },
)


@st.composite
def texts(draw):
    """Text of some events as `json` may write it, with members in any order, some of them twice."""
    spaces = st.sampled_from(["", " ", "\n", "\t\r "])
    found = []
    for event in draw(st.lists(_EVENTS, max_size=4)):
        members = draw(st.permutations(list(event.items())))
        if draw(st.integers(0, 5)) == 0:
            members += draw(st.permutations(list(draw(_EVENTS).items())))
        ascii_ = draw(st.booleans())
        parts = [
            f"{json.dumps(name)}{draw(spaces)}:{json.dumps(value, ensure_ascii=ascii_)}"
            for name, value in members
        ]
        found.append("{" + f"{draw(spaces)},".join(parts) + "}")
    between = draw(spaces)
    return f"{between},".join(found).encode()


def read_by_msgspec(text):
    """How many events a text has, in brackets or not, its nodes, and the others that matter with
    how many nodes lie ahead; None where any of the text is no event, or has no time."""
    bare = text.strip().removeprefix(b"[").removesuffix(b"]").rstrip().removesuffix(b",")
    try:
        events = DECODER.decode(b"[%b]" % bare)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if any(NO_TIME in (event.ts, event.dur) for event in events):
        return None
    if any(event.dur < 0 and event.cat != "Kernel" for event in events):
        return None
    nodes, others = [], []
    for event in events:
        args = event.args
        if event.cat == "Node" and event.name.endswith(SUFFIX) and args is not None:
            used = args.mem_bytes_in_use
            known = used.isascii() and used.isdigit() and len(used) <= 18
            nodes.append(
                (
                    *(event.name, args.op_name, args.provider, args.parameter_size),
                    *(args.activation_size, args.output_size),
                    *(bytes(args.input_type_shape), bytes(args.output_type_shape)),
                    *(event.tid, event.ts, event.dur, int(used) if known else -1),
                )
            )
        elif event.cat == "Kernel" or event.name in ("model_run", "profile_truncated"):
            others.append((len(nodes), event))
    return len(events), nodes, others


def read_by_core(text):
    """The same as the core reads it, None where it leaves the text to msgspec."""
    table = _core.ProfileNodes()
    found = table.scan(text)
    if found is None:
        assert len(table) == 0
        return None
    count, spans = found
    others = [(ahead, DECODER.decode(b"[%b]" % text[a:b])[0]) for ahead, a, b in spans]
    kinds, begun = table.kinds(), [table.node(row) for row in range(len(table))]
    kind, *numbers = (column.tolist() for column in table.columns())
    nodes = [(*kinds[one], *row) for one, *row in zip(kind, *numbers, strict=True)]
    assert begun == [(node[0], node[9]) for node in nodes]
    return count, nodes, others


@settings(max_examples=examples(300), deadline=None)
@given(text=texts())
def test_what_json_may_spell(text):
    """Names, escapes, numbers, sizes, shapes, unknown members and members that come twice: the
    core reads what msgspec reads, and nothing else."""
    assert read_by_core(text) == read_by_msgspec(text)


@settings(max_examples=examples(300), deadline=None)
@given(text=texts() | st.sampled_from(list(seeds.profiles())), data=st.data())
def test_what_is_damaged(text, data):
    """Bytes changed, put in and cut off at random: what the core still reads is what msgspec
    reads."""
    damaged = bytearray(text)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        gone = data.draw(st.integers(0, 2))
        put = data.draw(
            st.sampled_from([b"", *(bytes([one]) for one in b'{}[]",:\\-0e.nu \x1f\xc3\xed')])
        )
        damaged[at : at + gone] = put
    found = read_by_core(bytes(damaged))
    if found is not None:
        assert found == read_by_msgspec(bytes(damaged))


def _kept():
    with zipfile.ZipFile(FUZZ / "corpus.zip") as corpus:
        names = [name for name in corpus.namelist() if name.startswith("profile/")]
        return [corpus.read(name) for name in names if not name.endswith("/")]


def test_the_fuzzing_corpus():
    """What fuzzing has kept is read as msgspec reads it, or left to it."""
    kept = _kept()
    assert len(kept) > 50
    read = 0
    for text in kept:
        found = read_by_core(text)
        read += found is not None
        assert found is None or found == read_by_msgspec(text)
    assert 10 < read < len(kept)


def test_names_and_columns_of_a_table():
    """A node that was read one by one is of the kind that the core found; rows are handed out
    once; rows that are not there have no name."""
    table = _core.ProfileNodes()
    node = {"name": f"a{SUFFIX}", "cat": "Node", "args": {"op_name": "Add"}, "ts": 5, "dur": 2}
    assert table.scan(json.dumps(node).encode()) == (1, [])
    table.add(f"a{SUFFIX}", "Add", "", "", "", "", b"[]", b"[]", 3, 9, 1, "12")
    assert table.node(1) == (f"a{SUFFIX}", 9)
    with pytest.raises(IndexError):
        table.node(2)
    assert [column.tolist() for column in table.columns()] == [
        *([0, 0], [0, 3], [5, 9], [2, 1], [-1, 12])
    ]
    assert len(table) == 0


def test_nesting_is_bounded():
    """Arrays and objects in each other are passed over 64 deep; deeper ones are left to msgspec."""
    for depth, read in ((63, True), (64, True), (65, False), (100_000, False)):
        nested = "[" * depth + "1" + "]" * depth
        text = f'{{"name": "model_run", "ts": 1, "dur": 1, "more": {nested}}}'.encode()
        assert (_core.ProfileNodes().scan(text) is not None) == read
