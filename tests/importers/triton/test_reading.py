"""Traces of the Triton Inference Server, by a simulated server whose true times are known."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.prediction import Scenario
from profiler.prediction.predict import predict
from profiler.tools.sources import load
from profiler.trace import DropKind
from tests.importers.triton.simulated_server import (
    SD3_BLS,
    SD3_ENSEMBLE,
    Model,
    Server,
    fragments,
    objects,
    open_loop,
    trace,
)

FORMS = {
    "fragments": fragments,
    "objects": objects,
    "objects of 1.x": lambda traced: objects(traced, "lower"),
}


def served(models=SD3_ENSEMBLE, count=40, gap=50_000_000):
    """Requests that wait for each other: most of the time two are under way."""
    return Server(models, seed=5).run(open_loop(count, gap, seed=5))


def imported(folder, text, **options):
    folder.mkdir(exist_ok=True)
    path = folder / "trace.json"
    path.write_text(text, encoding="utf-8")
    return load(import_trace([path], folder / "traces", options=options))


def every(requests):
    for request in requests:
        yield request
        yield from every(request.children)


def union(ranges):
    """The length of the union of ranges, by another way than ours: the moments that are in one."""
    total, until = 0, None
    for begin, end in sorted(ranges):
        total += max(end - max(begin, until if until is not None else begin), 0)
        until = end if until is None else max(until, end)
    return total


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    requests = served()
    folder = tmp_path_factory.mktemp("ensemble")
    return requests, imported(folder, fragments(trace(requests)), rate="1")


@pytest.mark.parametrize("form", FORMS)
def test_queue_and_compute_times_are_the_true_ones(tmp_path, form):
    """In every form of the file, to the nanosecond: each call waits and computes for as long as the
    server says."""
    requests = served()
    run = imported(tmp_path, FORMS[form](trace(requests)), rate=1)
    true = Counter(
        (r.model.name, r.request_start, r.queue_ns, r.compute_ns)
        for r in every(requests)
        if not r.model.steps
    )
    took = {}
    for kind, call, duration in run.commands.select(
        pl.col("op_type").cast(pl.String), "call", "duration_ns"
    ).iter_rows():
        key = (call, "queue" if kind == "queue" else "compute")
        took[key] = took.get(key, 0) + duration
    calls = run.calls.select("call", pl.col("submodule").cast(pl.String), "start_ns").rows()
    found = Counter(
        (name, start, took.get((call, "queue"), 0), took[call, "compute"])
        for call, name, start in calls
    )
    assert found == true
    assert not run.drops


def test_the_table_of_requests_has_the_true_times(ensemble):
    """Latency, and the union over its calls of waiting and of computing; requests at once."""
    requests, run = ensemble
    table = analyze(run).requests.sort("pipeline")
    ordered = sorted(requests, key=lambda r: r.request_start)
    for row, true in zip(table.iter_rows(named=True), ordered, strict=True):
        begin = true.recv[0] if true.protocol == "HTTP" else true.recv[1]
        assert row["latency_ns"] == max(true.request_end, true.send[1]) - begin
        queues = [(c.queue_start, c.compute_start) for c in true.children]
        assert row["queue_ns"] == union(queues)
        assert row["compute_ns"] == union([(c.compute_start, c.compute_end) for c in true.children])
    assert table["in_flight"].max() > 1


def test_percentiles_are_those_of_the_true_times(ensemble):
    """Of each model's calls: numpy says the same of what the server knows."""
    requests, run = ensemble
    rows = analyze(run).request_percentiles.filter(pl.col("submodule") == "denoise")
    found = {row["part"]: row for row in rows.iter_rows(named=True)}
    calls = [c for r in requests for c in r.children if c.model.name == "denoise"]
    for part, times in (
        ("queue", [c.queue_ns for c in calls]),
        ("compute", [c.compute_ns for c in calls]),
        ("latency", [c.request_end - c.request_start for c in calls]),
    ):
        for name, q in (("p50_ns", 0.5), ("p95_ns", 0.95), ("p99_ns", 0.99)):
            assert found[part][name] == np.quantile(times, q, method="higher"), (part, name)


def test_the_first_lines_tell_of_requests(ensemble, tmp_path, cli):
    """What takes a server's operator thirty seconds: latencies, queues and for which model; an idle
    model is no hardware to give other work to."""
    requests, _ = ensemble
    path = tmp_path / "trace.json"
    path.write_text(fragments(trace(requests)))
    code, out, err = cli("analyze", path, "--no-html", "--import", "rate=1")
    assert code == 0, err
    text = " ".join(out.split())
    assert f"Requests {len(requests)}, p50 " in text
    assert "of their time in queues, p95 " in text
    assert "for denoise" in text
    assert "other work" not in text
    assert "--section requests" in text


def test_requests_of_a_batch_share_the_device(tmp_path):
    """Four requests that compute together keep their model busy once."""
    model = Model("clip", max_batch=4, delay=500_000)
    requests = Server([model]).run([(n * 1_000, "clip", "HTTP") for n in range(4)])
    run = imported(tmp_path, fragments(trace(requests)), rate=1)
    assert len({r.batch for r in requests}) == 1
    busy = analyze(run).devices.filter(pl.col("device") == "triton:0")["busy_ns"].item()
    assert busy == requests[0].compute_ns
    assert len(run.calls) == 4


def test_the_instances_of_a_model_are_those_seen_at_once(ensemble):
    """A device a model; `denoise` has two instances, the decoder one."""
    _, run = ensemble
    found = {one.hardware: one.compute_units for one in run.info.devices.values() if one.hardware}
    assert (found["denoise"], found["vae"]) == (2, 1)
    assert set(found) == {"clip_l", "clip_g", "t5", "denoise", "vae"}


def test_a_model_that_calls_others_is_a_pipeline(tmp_path):
    """Business logic scripting: its calls are the pipeline's, its own waiting counts as queue."""
    requests = served(SD3_BLS)
    run = imported(tmp_path, fragments(trace(requests)), rate=1)
    names = set(run.calls["submodule"].cast(pl.String))
    assert names == {"clip_l", "clip_g", "t5", "denoise", "vae"}
    assert len(run.calls) == 5 * len(requests)
    table = analyze(run).requests.sort("pipeline")
    for row, true in zip(
        table.iter_rows(named=True), sorted(requests, key=lambda r: r.request_start), strict=True
    ):
        waits = [(r.queue_start, r.compute_start) for r in every([true])]
        assert row["queue_ns"] == union(waits)


@pytest.mark.parametrize(
    ("options", "codes"), [({}, ["rate_untold"]), ({"rate": "3"}, ["every_nth"]), ({"rate": 1}, [])]
)
def test_every_nth_request_is_said(tmp_path, options, codes):
    """The file does not tell the rate; whoever gives it is told what it means."""
    requests = served(count=12)
    run = imported(tmp_path, fragments(trace(requests, rate=3)), **options)
    assert [drop.detail.code.value for drop in run.drops] == codes
    assert len(run.spans.filter(pl.col("kind") == "pipeline")) == 4


def test_incomplete_requests_are_named(tmp_path):
    """A request whose end is missing goes with all that it called; a caller that is missing takes
    what it called; both by id and model."""
    rows = json.loads(objects(trace(served(count=6))))
    by_root = [row for row in rows if "parent_id" not in row]
    stamps = by_root[0]["timestamps"]
    by_root[0]["timestamps"] = [s for s in stamps if s["name"] != "REQUEST_END"]
    rows.remove(by_root[1])
    run = imported(tmp_path, json.dumps(rows), rate=1)
    (drop,) = run.drops
    assert drop.kind is DropKind.DROPPED_EVENTS
    assert drop.count == 1 + 5
    assert f"{by_root[0]['id']} (sd3)" in drop.detail.values["requests"]
    assert len(run.calls) == 5 * 4


def test_requests_that_no_model_computed_are_named(tmp_path):
    """What the response cache answers begins and ends, computes nothing, and is no silent loss."""
    rows = json.loads(objects(trace(served(count=3))))
    at = rows[0]["timestamps"][0]["ns"]
    names = ("REQUEST_START", "QUEUE_START", "REQUEST_END")
    stamps = [{"name": name, "ns": at + number} for number, name in enumerate(names)]
    rows.append({"id": 900, "model_name": "vae", "model_version": 1, "timestamps": stamps})
    run = imported(tmp_path, json.dumps(rows), rate=1)
    (drop,) = run.info.drops
    assert (drop.detail.code, drop.count) == ("requests_not_computed", 1)
    assert drop.detail.values["requests"] == ("900 (vae)",)
    assert run.calls["pipeline"].n_unique() == 3


def test_requests_without_a_queue(tmp_path):
    """Where no request tells of waiting it has none, and the rest is read."""
    rows = json.loads(objects(trace(served(count=3))))
    for row in rows:
        row["timestamps"] = [s for s in row["timestamps"] if s["name"] != "QUEUE_START"]
    run = imported(tmp_path, json.dumps(rows), rate=1)
    assert len(run.calls) == 15
    assert "queue" not in run.commands["op_type"].cast(pl.String).to_list()
    assert set(run.counters["name"].cast(pl.String)) == {"requests in flight"}


def test_a_cut_file_is_read_as_far_as_it_is_whole(tmp_path):
    """At whatever byte it ends: whole requests and a drop, or one sentence."""
    text = fragments(trace(served(count=4)))
    told = Counter()
    for length in range(1, len(text), len(text) // 9):
        try:
            run = imported(tmp_path / str(length), text[:length], rate=1)
        except InputError as error:
            told["refused"] += "\n" not in str(error)
            continue
        assert DropKind.TRUNCATED_FILE in {drop.kind for drop in run.drops}
        assert 0 < len(run.calls) <= 20
        told["read"] += 1
    assert min(told["read"], told["refused"]) > 1


@pytest.mark.parametrize(
    "change",
    [
        ('"ns": 2', '"ns": -2'),
        ('"ns": 2', '"ns": "x2"'),
        ('"id": 3', '"id": 1e9'),
        ('"model_name"', '"model"'),
        ("timestamps", "stamps"),
    ],
)
def test_a_damaged_fragment_is_counted(tmp_path, change):
    """What of the others is whole is read, or the sentence says that nothing is."""
    before, after = change
    text = fragments(trace(served(count=4))).replace(before, after, 3)
    try:
        run = imported(tmp_path, text, rate=1)
    except InputError:
        return
    assert run.drops
    assert len(run.calls) <= 20


def test_tensors_are_never_taken_over(tmp_path):
    """What a server was asked and answered reaches no file of the bundle."""
    rows = json.loads(fragments(trace(served(count=2))))
    tensor = {"name": "prompt", "data": "a secret prompt", "shape": "1", "dtype": "BYTES"}
    rows.insert(1, {"id": 1, "activity": "TENSOR_QUEUE_INPUT", "tensor": tensor})
    run = imported(tmp_path, json.dumps(rows), rate=1)
    assert len(run.calls) == 10
    files = [file for file in (tmp_path / "traces").rglob("*") if file.is_file()]
    data = b"".join(file.read_bytes() for file in files)
    assert files
    assert b"secret prompt" not in data


def test_it_is_told_by_content(tmp_path):
    """And no JSON of others is taken for it."""
    path = tmp_path / "t.json"
    path.write_text(fragments(trace(served(count=1))))
    assert recognised([path]).name == "triton"
    path.write_text('[{"id": 1, "name": "x", "ph": "X"}]')
    with pytest.raises(InputError):
        import_trace([path], tmp_path / "traces")


class ClosedLoop(Server):
    """The same server under a closed loop: as soon as a request is answered the next arrives."""

    def __init__(self, models, total, **settings):
        super().__init__(models, **settings)
        self._left = total

    def _handle(self, request, now, done):
        if request.parent is not None:
            super()._handle(request, now, done)
            return

        def answered(at):
            done(at)
            if self._left:
                self._left -= 1
                self._at(at, lambda when: self._arrive(when, request.model.name, "HTTP"))

        super()._handle(request, now, answered)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_predicted_latencies_are_those_of_the_server(tmp_path, concurrency):
    """From a trace under another load: what so many requests at once take by the simulation of the
    trace is within 10 % of what the server takes with so many."""
    models = tuple(
        Model(m.name, instances=m.instances, infer=m.infer, steps=m.steps) for m in SD3_ENSEMBLE
    )  # without batches, which are not predicted
    recorded = Server(models, seed=5).run(open_loop(80, 45_000_000, seed=5))
    run = imported(tmp_path, fragments(trace(recorded)), rate=1)
    found = predict(run, analyze(run), Scenario(concurrency=concurrency))
    loop = ClosedLoop(models, 200, seed=9)
    truly = loop.run([(n, "sd3", "HTTP") for n in range(concurrency)])
    latency = [max(r.request_end, r.send[1]) - r.recv[0] for r in truly[2 * concurrency :]]
    assert found.simulation.latency(50) == pytest.approx(np.median(latency), rel=0.1)
    window = truly[-1].request_end - truly[2 * concurrency].request_end
    assert found.simulation.throughput == pytest.approx(len(latency) / window * 1e9, rel=0.1)
    assert len(found.recorded.latency_ns) == 80


def test_a_trace_predicts_nothing_but_requests_at_once(ensemble):
    """It tells of no steps and no types."""
    _, run = ensemble
    with pytest.raises(InputError, match="--concurrency alone"):
        predict(run, analyze(run), Scenario(steps=4))
