"""`--json`: the document holds what the analysis found, and the documentation what it holds."""

import json
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from msgspec import structs

import profiler
from profiler.analysis import DeviceProfile, tables
from profiler.analysis.analyze import analyze
from profiler.report import document, to_json
from profiler.report.files import IDENTIFIED
from profiler.text import Note, NoteCode
from profiler.trace import Drop, DropKind, DropReason
from profiler.trace.documents import LONGEST, VERSIONS, bounded, envelope
from tests.runs import TINY_INFO, make_run, tiny_run

TABLES = {table.name: table.columns for table in tables() if table.name != "findings"}  # nested
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "json.md"
_TYPES = {
    "text": str,
    "integer": int,
    "number": (int, float),
    "true/false": bool,
    "object": dict,
    "list of text": list,
    "list of integers": list,
    "list of objects": list,
    "list": list,
    "object of device_profile": dict,
    "ladder": dict,
    "outcome": dict,
}
HEAD = tuple(envelope("analysis"))
_DTYPES = {pl.String: str, pl.Boolean: bool, pl.Float64: (int, float)}
PROFILE = DeviceProfile("", {"float16": 32e12}, None, None, "", True, device="rbln:0")
CUT = Note.of(DropReason.CUT_OR_DAMAGED, at=9, size=16)
DROP = Drop(DropKind.TRUNCATED_FILE, "vae.pb", 7, "bytes", CUT)


def _sections():
    """Section → key → (type, nullable), as `docs/json.md` has them."""
    found, title = {}, ""
    for line in DOCUMENTATION.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"#+ (.+)", line):
            title = heading[1]
            if title.partition(".")[0] in VERSIONS.keys() - {"analysis"}:
                return found  # documents of other kinds follow
        elif row := re.fullmatch(r"- `(\w+)` \((.*?)\): .+", line):
            kind, *others = row[2].split(", ")
            found.setdefault(title, {})[row[1]] = (kind, "null" in others)
    return found


def _parts(found):
    """Section title → the objects of the document that it describes."""
    return {
        "envelope": [{key: found[key] for key in HEAD}],
        "envelope.producer": [found["producer"]],
        "analysis": [{key: value for key, value in found.items() if key not in HEAD}],
        "run": [found["run"]],
        "run.selection": [found["run"]["selection"]],
        "run.overhead": [found["run"]["overhead"]],
        "accounting": [found["accounting"]],
        "findings": found["findings"],
        "findings.where": [finding["where"] for finding in found["findings"]],
        "step_summary": [found["step_summary"]],
        "ladder": [found["ladder"]],
        "ladder.rungs": found["ladder"]["rungs"],
        "ladder.without_a_number": found["ladder"]["without_a_number"],
        "outcome": [rung["alone"] for rung in found["ladder"]["rungs"] if rung["alone"]],
        "device_profile": [*found["device_profiles"].values()],
    }


def test_every_key_is_documented_and_every_documented_key_is_there():
    """The document and `docs/json.md` have the same keys, types and nulls, but for tables."""
    described = _sections()
    found = document(analyze(tiny_run(drops=(DROP,)), measured=(PROFILE,)))
    parts = _parts({key: value for key, value in found.items() if key not in TABLES})
    assert set(described) == set(parts)
    for title, objects in parts.items():
        assert objects, title
        for entry in objects:
            assert set(entry) == set(described[title]), title
            for key, value in entry.items():
                kind, nullable = described[title][key]
                if value is None:
                    assert nullable, f"{title}.{key}"
                else:
                    assert isinstance(value, _TYPES[kind]), f"{title}.{key}"


@cache
def _with_a_drop():
    """The document of the tiny run with something dropped."""
    return document(analyze(tiny_run(drops=(DROP,))))


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_the_declared_columns(name):
    """Every table is a list of objects with its columns, of their types, null where that may be."""
    notes = [c.name for c in TABLES[name] if c.codes and issubclass(c.codes, NoteCode)]
    for entry in _with_a_drop()[name]:
        texts = [f"{note}_text" for note in notes]
        ids = ["id"] if name in IDENTIFIED else []
        assert list(entry) == [*ids, *(column.name for column in TABLES[name]), *texts]
        assert all(isinstance(entry[text], str) for text in texts)
        for column in TABLES[name]:
            value = entry[column.name]
            if value is None:
                assert column.nullable, column.name
            elif column.name in notes:
                assert all(note["code"] in [*column.codes] for note in value), column.name
            else:
                assert isinstance(value, _DTYPES.get(column.dtype.base_type(), int)), column.name


def test_times_are_integers():
    """Every key that ends in _ns, but measured costs, is a whole number of nanoseconds."""
    described = _sections()
    for title, keys in described.items():
        for key, (kind, _) in keys.items():
            if key.endswith("_ns") and title != "run.overhead":
                assert kind == "integer", f"{title}.{key}"


def test_values_are_those_of_the_analysis():
    """Numbers of the tiny run, through JSON text and back."""
    found = json.loads(to_json(analyze(tiny_run(drops=(DROP,)))))
    assert found["version"] == VERSIONS["analysis"]
    assert found["accounting"]["end_to_end_ns"] == 1000
    assert found["accounting"]["stages"][0] == {
        "stage": "encode",
        "elapsed_ns": 100,
        "calls_ns": 90,
        "host_ns": 10,
        "idle_ns": 0,
    }
    assert found["run"]["selection"] == {"stage": [], "submodule": [], "device": [], "step": []}
    assert [row["total_ns"] for row in found["operators"]] == [300, 230, 80, 70, 70, 10]
    assert found["calls"][0]["start_ns"] == 1_800_000_000_000_000_010
    assert found["drops"][0]["detail"] == [{"code": "cut_or_damaged", "at": 9, "size": 16}]
    assert found["drops"][0]["detail_text"] == (
        "the file is cut or damaged at byte 9 of 16: copy it again, or record again"
    )


def test_all_operators_are_in_it():
    """--top is for the terminal."""
    assert len(document(analyze(tiny_run()))["operators"]) == 6


def test_empty_run_is_a_document_too():
    """Every key is there."""
    described = set(_sections()["analysis"])
    assert set(document(analyze(make_run()))) == described | set(TABLES) | set(HEAD)


def test_findings_name_rows():
    """An id is of one row, and the same when a run is analyzed again; those of a finding are ids of
    rows that have what it names."""
    path = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"
    found, again = (document(profiler.analyze(path)) for _ in range(2))
    by_id = {row["id"]: row for table in IDENTIFIED for row in found[table]}
    assert len(by_id) == sum(len(found[table]) for table in IDENTIFIED)
    assert [*by_id] == [row["id"] for table in IDENTIFIED for row in again[table]]
    names = [finding["id"] for finding in found["findings"]]
    assert len({*names}) == len(names) > 0
    assert [finding["rows"] for finding in found["findings"]] == [
        finding["rows"] for finding in again["findings"]
    ]
    named = [
        (finding["where"], by_id[row]) for finding in found["findings"] for row in finding["rows"]
    ]
    assert named
    for where, row in named:
        known = {"submodule", "device", "layer", "step", "pipeline"} & row.keys()
        at_call = row.get("call") in where["calls"]
        assert at_call or any(where[key] is not None and where[key] == row[key] for key in known)


def test_long_names_are_cut():
    """A name of 1 MB, as text and as key, is cut, and stays another than one that begins alike."""
    long = "A" * 1_000_000
    text, keys = bounded([long, {long: 1, f"{long}B": 2, "short": None}])
    assert text.startswith("A" * LONGEST)
    assert len(text) < LONGEST + 80
    assert [keys[key] for key in keys] == [1, 2, None]
    assert all(len(key) < LONGEST + 80 for key in keys)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: (2, {3})}, Path("x")])
def test_what_json_lacks_is_made_plain(value):
    """A manifest read from JSON may hold NaN, a run in memory anything: the text is JSON."""
    info = structs.replace(TINY_INFO, settings={"strange": value})
    text = to_json(analyze(tiny_run(info=info)))
    assert "strange" in json.loads(text, parse_constant=pytest.fail)["run"]["settings"]
