"""Predictions in the terminal and as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console

from profiler.analysis import worded_note
from profiler.analysis.analyze import analyze
from profiler.prediction import Assumption, Scenario
from profiler.prediction.predict import predict
from profiler.prediction.report import (
    headline,
    prediction_document,
    prediction_report,
    prediction_to_json,
)
from profiler.report import catalogue, print_report
from profiler.text import Note, in_language
from tests.analysis.prediction.requested import guided_run, stepped_run
from tests.documents import conforms
from tests.runs import make_info, tiny_run

_SPACE = "\N{NO-BREAK SPACE}"


def _predicted(run, **scenario):
    return predict(run, analyze(run), Scenario(**scenario))


def _text(prediction, width=100):
    out = io.StringIO()
    print_report(Console(file=out, width=width, highlight=False), prediction_report(prediction))
    return out.getvalue()


def test_the_first_line_says_it_all():
    """Before, after, the interval, and what was asked. Two steps are drawn from 200 and 220 ns:
    420 and at most 20 more or less, widened by sqrt(1.5) 12.7 / 1.96 for so few."""
    found = _predicted(guided_run(), guidance=False, drop=("vae",), steps=3)
    assert headline(found).replace(_SPACE, " ") == (
        "1.81 µs → 920 ns, 90 % interval 666 ns to 1.17 µs (3 steps, guidance off, without vae)"
    )
    once = _predicted(tiny_run())
    assert headline(once).replace(_SPACE, " ") == (
        "1.00 µs → 1.00 µs, no interval (nothing changed)"
    )


def test_tables_by_stage_and_submodule():
    """Parts before and after, and the whole below them."""
    text = _text(_predicted(tiny_run(), steps=4))
    rows = [line.split() for line in text.splitlines()]
    assert ["denoise", "0.66", "1.16", "+75.8", "77.3"] in rows
    assert ["transformer", "0.50", "0.90", "+80.0", "60.0"] in rows
    assert rows.count(["end", "to", "end", "1.00", "1.50", "+50.0", "100.0"]) == 2


def test_of_several_requests_the_first_line_has_what_all_get():
    """A request has 1,050 ns of calls and 100 ns of the host between them; two keep the device
    busy: one is done every 1,050 ns, after twice that time. One alone takes 1,150."""
    run = stepped_run([[[("transformer", "cond", 300)]] * 3])
    assert headline(_predicted(run, concurrency=2)).replace(_SPACE, " ") == (
        f"2 requests at once: {1e9 / 1050:,.2f} requests/s, half of them within 2.10 µs; one "
        "alone: 1.15 µs → 1.15 µs, 90 % interval 1.14 µs to 1.16 µs"
    )
    asked = headline(_predicted(run, concurrency=2, drop=("vae",)))
    assert asked.endswith("(without vae)")


def test_the_cost_of_tracing_that_the_run_knows_is_in_what_is_assumed():
    """A run that knows 8 % of the whole, but nothing by submodule: the prediction says 8 %, and
    not that nothing is known."""
    run = tiny_run()
    known = replace(run, info=make_info(overhead={"share": 0.08}))
    text = " ".join(_text(_predicted(known)).split())
    assert "include the overhead of recording operators: 8.0 % of the run" in text
    ours, another = (replace(run, info=make_info(name)) for name in ("capture", "kineto"))
    assert "which is not known: for times" in " ".join(_text(_predicted(ours)).split())
    text = " ".join(_text(_predicted(another)).split())
    assert "what the profiler cost, which its trace does not tell" in text
    assert "--ops" not in text


@pytest.mark.parametrize(
    ("shares", "english", "korean"),
    [
        (
            (7.41, 5.0, 1430.2),
            "7.41 times as long (5.00 to 1,430)",
            "시간의 7.41배 (5.00 ~ 1,430)가",
        ),
        ((1.996, 1.0, 12.34), "2.00 times as long (1.00 to 12.3)", "시간의 2.00배 (1.00 ~ 12.3)가"),
        ((1.99, 1.0, 3.0), "199 % (100 % to 300 %) of its time", "시간의 199 % (100 % ~ 300 %)가"),
    ],
)
def test_from_twice_as_much_on_a_share_is_a_factor(shares, english, korean):
    """Three significant digits, its bounds too, whatever these are; in both languages."""
    bounds = dict(zip(("share", "low_share", "high_share"), shares, strict=True))
    text = worded_note(Note.of(Assumption.TIMES_BATCH, submodule="vae", **bounds))
    assert f"vae takes {english} with the larger batch" in text.replace(_SPACE, " ")
    assert korean in in_language(text, catalogue("ko")).replace(_SPACE, " ")


def test_requests_at_once():
    """Rates, percentiles, devices, and the placement."""
    steps = [[("transformer", "cond", 300)]] * 3
    text = _text(_predicted(stepped_run([steps]), concurrency=2, place={"vae": "rbln:1"}))
    assert "2 requests at once" in text
    assert "Best placement found" in text
    assert "What it assumes" in text


def test_placements_that_were_not_simulated_were_ruled_out():
    """32 considered and 2 simulated: of the others a bound says that they are no better."""
    steps = [[("transformer", "cond", 300)]] * 3
    found = _predicted(stepped_run([steps]), concurrency=2, place={"vae": "rbln:1"})
    best = structs.replace(found.best, possible=32, considered=32, simulated=2, exhaustive=True)
    text = " ".join(_text(structs.replace(found, best=best)).split())
    assert (
        "Of 32 placements 32 were considered and 2 simulated, the others ruled out by a bound: "
        "none is more than 1 % better" in text
    )


def test_throughput_has_its_interval():
    """In the terminal and in the document; none where nothing was measured more than once."""
    steps = [[("transformer", "cond", ns)] for ns in (300, 280, 320)]
    found = _predicted(stepped_run([steps]), concurrency=2)
    simulation = prediction_document(found)["simulation"]
    low, high = simulation["low_requests_per_s"], simulation["high_requests_per_s"]
    assert low < simulation["requests_per_s"] < high
    text = _text(found)
    row = next(line.split() for line in text.splitlines() if line.startswith("as placed"))
    assert row[3:5] == [f"{value:,.0f}" for value in (low, high)]
    once = _predicted(tiny_run(), concurrency=2)
    assert prediction_document(once)["simulation"]["low_requests_per_s"] is None


def test_the_document_is_what_the_page_says():
    """It has the keys of its schema, which `docs/json.md` lists, and no others."""
    steps = [[("transformer", "cond", 300)]] * 3
    found = _predicted(stepped_run([steps]), concurrency=2, place={"vae": "rbln:1"})
    document = prediction_document(found)
    assert conforms(json.loads(prediction_to_json(found))) == document


def test_hostile_names_and_narrow_terminals():
    """Control characters do not reach the terminal; lines stay within its width."""
    steps = [[("transformer\x1b[31m", "cond", 300)]] * 3
    text = _text(_predicted(stepped_run([steps]), steps=2), width=60)
    assert "\x1b[31m" not in text
    assert max(map(len, text.splitlines())) <= 60
