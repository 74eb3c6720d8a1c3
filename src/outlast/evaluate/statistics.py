"""Intervals over seeds: the seed is the unit of replication, never the episode.

Every reported quantity of the project is made by `summary`. Only numpy, so that reports start fast.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959963984540054
INFINITE = (-math.inf, math.inf)


@functools.cache
def t_quantile(confidence: float, degrees: int) -> float:
    """Return the t for which |T| < t with the given probability.

    With t = sqrt(degrees) tan(angle), that probability is a finite sum (Abramowitz and Stegun 26.7.3 and
    26.7.4) and rises with the angle, so bisection finds it to the last bits.
    """
    if not 0.0 < confidence < 1.0 or degrees < 1:
        raise ValueError(f"no t quantile for confidence {confidence} and {degrees} degrees of freedom")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _central_share(angle, degrees) < confidence:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _central_share(angle: float, degrees: int) -> float:
    odd = degrees % 2
    orders = np.arange(1, degrees // 2)
    factors = (2 * orders + odd - 1) / (2 * orders + odd) * math.cos(angle) ** 2
    series = math.sin(angle) * (1.0 + np.cumprod(factors).sum()) if degrees > 1 else 0.0
    return 2 / math.pi * (angle + math.cos(angle) * series) if odd else series


def mean_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean over the first axis and the ends of its 95 % t-interval.

    NaN means that a seed has no value there and is left out; the ends are NaN with fewer than two values.
    """
    values = np.asarray(values, dtype=float)
    seen = np.isfinite(values)
    count = seen.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(seen, values, 0.0).sum(axis=0) / count
        spread = np.where(seen, (values - mean) ** 2, 0.0).sum(axis=0)
        error = np.sqrt(spread / (count - 1) / count)
    quantiles = [math.nan, math.nan] + [t_quantile(CONFIDENCE, n - 1) for n in range(2, len(values) + 1)]
    half = np.asarray(quantiles)[count] * error
    return mean, mean - half, mean + half


def summary(
    per_seed: Sequence[float | None] | np.ndarray, *, bounds: tuple[float, float] = INFINITE
) -> dict[str, Any]:
    """Return the mean over seeds with its 95 % t-interval, ready for strict JSON.

    A seed that is None or NaN has no value and is left out of both. One seed says nothing about other
    seeds, so its interval is [None, None]. `bounds` cuts the interval to the range that is possible, such
    as (0, 1) for a rate, which costs no coverage.
    """
    values = np.array(per_seed, dtype=float).ravel()
    mean, low, high = mean_interval(values)
    ends = [low, high] if np.isnan(low) else np.clip([low, high], *bounds)
    return {"mean": _number(mean), "ci95": [_number(end) for end in ends], "per_seed": _numbers(values)}


def paired_difference(first: Sequence[float | None], second: Sequence[float | None]) -> dict[str, Any]:
    """Summarise first minus second seed by seed; a pair with a missing side is left out."""
    left, right = np.array(first, dtype=float), np.array(second, dtype=float)
    if left.shape != right.shape:
        raise ValueError(f"cannot pair {left.size} seeds with {right.size}")
    return summary(left - right)


def wilson(successes: int, n: int) -> list[float]:
    """Return the 95 % Wilson score interval of a share of `n` independent trials; [0, 1] for none."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials")
    z2 = NORMAL_QUANTILE**2
    centre = (successes + z2 / 2) / (n + z2)
    failures = n - successes
    shares = successes * failures / n if n else 0.0
    half = NORMAL_QUANTILE * math.sqrt(shares + z2 / 4) / (n + z2)
    # Rounding must not move the ends that are exact.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return [low, 1.0 if failures == 0 else min(1.0, centre + half)]


def interquartile_mean(scores: np.ndarray) -> float:
    """Return the mean of the middle half of all scores, as rliable defines it."""
    return float(_trimmed(np.asarray(scores, dtype=float).reshape(1, -1))[0])


def bootstrap_iqm(
    scores: np.ndarray | Sequence[Sequence[float]], *, resamples: int = 10_000, seed: int = 0
) -> dict[str, Any]:
    """Return the interquartile mean of scores [seeds, tasks] with its 95 % percentile bootstrap interval.

    Stratified: each task draws its own seeds with replacement (Agarwal et al. 2021), because seeds are the
    replicates and tasks are fixed. The draws have a fixed seed: equal scores give an equal interval.
    """
    table = np.asarray(scores, dtype=float)
    if table.ndim != 2 or table.size == 0 or not np.isfinite(scores).all():
        raise ValueError(f"scores must be a finite [seeds, tasks] table, not of shape {table.shape}")
    n_seeds, n_tasks = table.shape
    ends = [None, None]
    if n_seeds > 1:
        draws = np.random.default_rng(seed).integers(n_seeds, size=(resamples, n_seeds, n_tasks))
        samples = _trimmed(table[draws, np.arange(n_tasks)].reshape(resamples, -1))
        ends = [float(end) for end in np.percentile(samples, [2.5, 97.5])]
    return {"iqm": interquartile_mean(table), "ci95": ends}


def _trimmed(rows: np.ndarray) -> np.ndarray:
    cut = rows.shape[1] // 4
    return np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1)


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(value) for value in values]
