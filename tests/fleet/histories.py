"""Generated histories of a metric, whose truth is known, in ns."""

from __future__ import annotations

import numpy as np

MODES = np.log1p(0.08)


def flat(generator: np.random.Generator, n: int, noise: float) -> np.ndarray:
    """No change."""
    return 1e8 * np.exp(generator.normal(0, noise, n))


def two_modes(generator: np.random.Generator, n: int, noise: float) -> np.ndarray:
    """Three in ten runs are 8 % slower, in no order."""
    return flat(generator, n, noise) * np.exp(MODES * (generator.random(n) < 0.3))


def drift(generator: np.random.Generator, n: int, noise: float, slope: float) -> np.ndarray:
    """Each run is slower by `slope` than the one before it."""
    return flat(generator, n, noise) * np.exp(slope * np.arange(n))


def step(generator: np.random.Generator, n: int, noise: float, at: int, by: float) -> np.ndarray:
    """Slower by `by` from position `at` on."""
    values = flat(generator, n, noise)
    values[at:] *= 1 + by
    return values
