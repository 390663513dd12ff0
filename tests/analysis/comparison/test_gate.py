"""The gate: what fails, what passes, and what cannot be told."""

import pytest

from profiler.compare import check_gate
from profiler.compare.compare import parse_limit
from profiler.errors import InputError
from tests.analysis.comparison.small import BASE, SLOWER, compared, steps_run


@pytest.mark.parametrize(
    ("text", "limit"), [("5%", 0.05), ("5 %", 0.05), ("0.5%", 0.005), ("+120%", 1.2), ("0%", 0)]
)
def test_limits(text, limit):
    """Per cent, with and without a sign or a space."""
    assert parse_limit(text) == pytest.approx(limit)


@pytest.mark.parametrize("text", ["5", "0.05", "", "%", "-5%", "nan%", "5%%", "1e3%"])
def test_what_is_no_limit(text):
    """Per cent must be said: 5 might mean a factor."""
    with pytest.raises(InputError, match="as in --fail-over 5%"):
        parse_limit(text)


@pytest.mark.parametrize(("limit", "failed"), [(0.05, True), (0.21, True), (0.23, False)])
def test_slower_by_more_than_the_limit(limit, failed):
    """denoise.step takes 110 ns after 90."""
    found = check_gate(compared(steps_run(BASE), steps_run(SLOWER)), "denoise.step", limit)
    assert found.failed is failed
    assert found.change == pytest.approx(20 / 90)


def test_faster_and_noise_pass():
    """A gate is about getting slower; what noise explains never fails."""
    faster = check_gate(compared(steps_run(SLOWER), steps_run(BASE)), "denoise.step", 0.0)
    noisy = steps_run((500, 50, 180, 110, 400, 60, 120))
    noise = check_gate(compared(steps_run(BASE), noisy), "denoise.step", 0.05)
    assert (faster.verdict, faster.failed) == ("faster", False)
    assert (noise.verdict, noise.failed) == ("within_noise", False)
    assert noise.change > 0.05


def test_values_that_show_no_noise():
    """Slower by more than the limit, of two equal runs and one: it cannot be told; by less, it
    passes."""
    base = [steps_run((500, 100, 100)), steps_run((501, 100, 100))]
    found = compared(base, steps_run((500, 107, 107)))
    with pytest.raises(InputError, match=r"slower by 7\.8%, but its values are too few, or equal"):
        check_gate(found, "denoise.step", 0.05)
    passed = check_gate(found, "denoise.step", 0.1)
    assert (passed.verdict, passed.failed) == ("unclear", False)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("end_to_end", "measured once on each side"),
        ("denoise.step.6", "only in base"),
        ("denoise.steps", "such as denoise.step"),
        ("nothing", "there is no metric 'nothing'"),
        ("denoise.step.idle", "took no time in base"),
    ],
)
def test_what_cannot_be_told(metric, words):
    """One sentence says why."""
    found = compared(steps_run(BASE), steps_run(SLOWER[:6]))
    with pytest.raises(InputError, match=words):
        check_gate(found, metric, 0.05)
