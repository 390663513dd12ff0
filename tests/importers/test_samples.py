"""The table of real files, samples.md: whole, and the counting beside it independent."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from pathlib import Path

import pytest

from profiler.importers.importing import built_in
from tests.corpus import CORPUS, needs_corpus
from tests.importers.samples import BEGIN, END, PAGE, events, measured, samples


def _rows():
    """The cells of each row of the page, by sample."""
    text = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = ([cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in lines)
    return {row[0]: row for row in cells}


@needs_corpus
def test_the_page_has_every_sample():
    """Whoever adds one to the corpus writes the table anew."""
    assert sorted(_rows()) == samples()


@needs_corpus
@pytest.mark.parametrize(
    "sample",
    ["nsys/mfu_2gpu_before.sqlite", "hta/event_sync_trace.json.gz", "tensorrt/RTX-3090_fp16"],
)
def test_the_page_says_what_importers_find(sample):
    """Events, commands and busy times of a sample are those of its row."""
    found = measured(CORPUS / sample)
    _, importer, count, commands, _, busy, *_ = _rows()[sample]
    assert (importer, count, commands) == (
        found["importer"],
        f"{found['events']:,}",
        f"{found['commands']:,}",
    )
    assert busy == ", ".join(f"{one:,.3f}" for one in found["busy_ms"])


@needs_corpus
def test_busy_times_are_the_true_ones():
    """Of every sample with a true time, to 1 % or 0.02 ms; of TensorRT without the warm-up less, of
    a TPU without what it waited for copies (`tests/importers/xplane` has it with that), of QNN
    without what the accelerator waited (`tests/importers/qnn` has both)."""
    checked = 0
    for sample, row in _rows().items():
        if sample.startswith(("xplane/xprof_tpu", "qnn/winml_optrace")):
            continue
        if row[1] in ("\N{EN DASH}", "tensorrt") or "\N{EN DASH}" in (row[5], row[6]):
            continue
        ours, true = ([float(x.replace(",", "")) for x in re.split(", ", row[at])] for at in (5, 6))
        assert ours == pytest.approx(true, rel=0.01, abs=0.02), sample
        checked += 1
    assert checked >= 26


def test_events_are_counted_without_importers(tmp_path):
    """Rows of a table, members of a list, of traceEvents, lines below a header."""
    database = tmp_path / "a.sqlite"
    with sqlite3.connect(database) as open_database:
        open_database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)")
        open_database.execute("CREATE TABLE StringIds (id INTEGER)")
        open_database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?)", [(1,), (2,)])
    open_database.close()
    contents = {
        "a.json": json.dumps([1, 2, 3]).encode(),
        "b.json.gz": gzip.compress(json.dumps({"traceEvents": [1, 2]}).encode()),
        "c.csv": b'Kind,Name\nK,"a,\nb"\n',
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    assert events(database) == 2
    assert [events(tmp_path / name) for name in contents] == [3, 2, 1]


def test_every_importer_stands_in_the_support_matrix():
    """Those of the registry and no other, each with what it was tried on."""
    page = (Path(__file__).parents[2] / "docs" / "importers.md").read_text(encoding="utf-8")
    text = page.split("## What each importer was tried on")[1]
    lines = re.findall(r"^\|.*\|$", text.split("\n## ")[0], re.M)[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    names = re.findall(r"`(\w+)`", " ".join(name for name, *_ in rows))
    assert sorted(names) == [one.name for one in built_in()]
    for _, producer, tried, _ in rows:
        assert producer
        assert re.match(r"(a )?real|generated|documentation only|\[torch's own encoder\]", tried)
