"""The simulated server keeps its own rules: else it would be no truth."""

from __future__ import annotations

import json
from itertools import groupby, pairwise

import pytest

from tests.importers.triton.simulated_server import (
    CLOCK,
    SD3_BLS,
    SD3_ENSEMBLE,
    Model,
    Server,
    fragments,
    objects,
    open_loop,
    trace,
)


def every(requests):
    for request in requests:
        yield request
        yield from every(request.children)


@pytest.mark.parametrize("models", [SD3_ENSEMBLE, SD3_BLS])
def test_no_instance_computes_two_batches_at_once(models):
    """Batches of one instance follow one another, and a batch's requests have the same times."""
    served = Server(models, seed=3).run(open_loop(40, 30_000_000))
    computed = [request for request in every(served) if request.batch is not None]
    by_batch: dict[int, set[tuple[int, int, int, int]]] = {}
    for request in computed:
        times = (
            request.compute_start,
            request.input_end,
            request.output_start,
            request.compute_end,
        )
        assert list(times) == sorted(times)
        assert request.queue_ns >= 0
        by_batch.setdefault(request.batch, set()).add(times)
    assert all(len(times) == 1 for times in by_batch.values())
    place = lambda r: (r.model.name, r.instance)  # noqa: E731
    for _, group in groupby(sorted(computed, key=place), key=place):
        spans = sorted({(r.compute_start, r.compute_end, r.batch) for r in group})
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_steps_of_an_ensemble_wait_for_each_other():
    """The denoiser begins when all three encoders have ended, the decoder after the denoiser."""
    for request in Server(SD3_ENSEMBLE, seed=1).run(open_loop(10, 100_000_000)):
        *encoders, denoise, vae = request.children
        assert max(e.request_end for e in encoders) <= denoise.request_start
        assert denoise.request_end <= vae.request_start
        assert request.request_start < request.queue_start < encoders[0].request_start
        assert vae.request_end < request.request_end
        assert request.compute_start is None


def test_the_batcher_waits_for_more():
    """Four requests within the delay are one batch; a fifth, alone, waits for the delay."""
    model = Model("clip", max_batch=4, delay=500_000)
    arrivals = [(n * 1_000, "clip", "HTTP") for n in range(4)] + [(50_000_000, "clip", "HTTP")]
    *together, alone = Server([model], noise=0).run(arrivals)
    assert len({request.batch for request in together}) == 1
    assert alone.queue_ns == 500_000
    assert together[0].compute_ns == round(1_035_000 * 1.3)


def test_a_rate_leaves_out_whole_requests():
    """Every third request is traced, with all that it called and with nobody else's."""
    served = Server(SD3_BLS, seed=2).run(open_loop(9, 200_000_000))
    traced = trace(served, rate=3)
    assert [r.id for r in traced] == list(range(1, 19))
    assert [r for r in traced if r.parent is None] == served[2::3]


def test_both_files_say_the_same():
    """Fragments joined by id are the objects of an older server."""
    traced = trace(Server(SD3_ENSEMBLE, seed=5).run(open_loop(5, 50_000_000)))
    joined: dict[int, dict] = {}
    for row in json.loads(fragments(traced)):
        one = joined.setdefault(row["id"], {"timestamps": []})
        one["timestamps"] += row.pop("timestamps", [])
        one |= row
    for one in json.loads(objects(traced)):
        other = joined.pop(one["id"])
        by_name = lambda stamp: stamp["name"]  # noqa: E731
        assert sorted(other.pop("timestamps"), key=by_name) == sorted(
            one.pop("timestamps"), key=by_name
        )
        assert one == other
    assert not joined
    assert all(request.request_start >= CLOCK for request in traced)
