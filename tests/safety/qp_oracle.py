"""An independent answer to the safety QP: float64 numpy, every pair of lines, compared by distance."""

import numpy as np

LOW, HIGH = np.array([0.0, -2.84], np.float32), np.array([1.0, 2.84], np.float32)
WEIGHTS = np.array([150.0, 1.0])
EXACT = 1e-10
"""Feasibility slack of the oracle, relative to each row: float64 rounding over vertices as thin as 1e-6."""


def reach(a, low=LOW, high=HIGH):
    """Return how much each row varies over the box, written out anew: `a` is [B, K, 2]."""
    radius = np.sqrt(np.sum(WEIGHTS * ((np.float64(high) - low) / 2) ** 2))
    return radius * np.sqrt(np.sum(np.float64(a) ** 2 / WEIGHTS, axis=-1))


def solve(nominal, a, b, *, low=LOW, high=HIGH, slack=0.0, chunk=2000):
    """Return command [B, 2], distance [B], feasible [B], active lines [B, 2] of `a u + b >= -slack * reach`.

    The distance is the weighted one, inf where nothing is feasible. An active line of -1 means none.
    """
    parts = [
        _solve(nominal[i : i + chunk], a[i : i + chunk], b[i : i + chunk], low, high, slack)
        for i in range(0, len(nominal), chunk)
    ]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _solve(nominal, a, b, low, high, slack):
    nominal, a, b, low, high = (np.float64(v) for v in (nominal, a, b, low, high))
    n = len(nominal)
    sides = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    limits = np.array([-low[0], high[0], -low[1], high[1]])
    a = np.concatenate([a, np.broadcast_to(sides, (n, 4, 2))], axis=1)
    b = np.concatenate([b, np.broadcast_to(limits, (n, 4))], axis=1)
    unit = reach(a, low, high)
    unit = np.where(unit > 0, unit, 1.0)
    b = b + slack * unit
    lines = a.shape[1]
    inverse = a / WEIGHTS
    square = np.sum(a * inverse, axis=-1)
    gap = np.sum(a * nominal[:, None], axis=-1) + b
    with np.errstate(all="ignore"):
        feet = nominal[:, None] - (gap / square)[..., None] * inverse
        i, j = np.triu_indices(lines, 1)
        (i_v, i_w), (j_v, j_w) = np.moveaxis(a[:, i], -1, 0), np.moveaxis(a[:, j], -1, 0)
        crossing = np.stack([i_w * b[:, j] - j_w * b[:, i], j_v * b[:, i] - i_v * b[:, j]], axis=-1)
        vertices = crossing / (i_v * j_w - i_w * j_v)[..., None]
        points = np.concatenate([nominal[:, None], feet, vertices], axis=1)
        value = np.einsum("nck,nrk->ncr", points, a) + b[:, None]
        allowed = np.all(value >= -EXACT * unit[:, None], axis=-1)
        distance = np.sqrt(np.sum(WEIGHTS * (points - nominal[:, None]) ** 2, axis=-1))
    distance = np.where(allowed, distance, np.inf)
    best = np.argmin(distance, axis=1)
    pick = np.arange(n)
    one = np.stack([np.arange(lines), np.full(lines, -1)], axis=1)
    pairs = np.concatenate([[[-1, -1]], one, np.stack([i, j], axis=1)])
    return points[pick, best], distance[pick, best], np.isfinite(distance[pick, best]), pairs[best]


def random_problems(rng, n, k=8):
    """Draw problems of the scale that barriers produce: rows of slope 0.01 to 4, mostly feasible."""
    a = rng.normal(size=(n, k, 2)) * np.exp(rng.normal(size=(n, k, 1))) * np.array([1.0, 0.2])
    b = rng.normal(size=(n, k)) * 0.5 + rng.choice([0.3, 0.8, 1.5], size=(n, 1))
    nominal = rng.uniform(LOW, HIGH, size=(n, 2))
    outside = rng.random(n) < 0.2
    nominal[outside] += rng.normal(size=(outside.sum(), 2)) * 2
    return _as_float32(nominal, a, b)


def degenerate_problems(rng, n, k=8):
    """Draw what breaks solvers: equal, opposite, nearly parallel, empty, concurrent and just touching rows."""
    nominal, a, b = (np.float64(v) for v in random_problems(rng, n, k))
    kind = rng.integers(0, 9, size=n)
    b = np.where((kind < 8)[:, None], np.abs(b), b)
    tiny = 10.0 ** rng.uniform(-9, -2, size=n)

    def change(which, row, slope, offset):
        a[kind == which, row], b[kind == which, row] = slope[kind == which], offset[kind == which]

    turn = np.stack([a[:, 0, 0] - tiny * a[:, 0, 1], a[:, 0, 1] + tiny * a[:, 0, 0]], axis=-1)
    inside = rng.uniform(LOW, HIGH, size=(n, 2))
    factor = np.exp(rng.normal(size=n))
    change(0, 1, a[:, 0], b[:, 0])
    change(1, 1, a[:, 0] * factor[:, None], b[:, 0] * factor)
    change(2, 1, -a[:, 0], -b[:, 0] + tiny)
    change(3, 1, turn, b[:, 0] + tiny * rng.normal(size=n))
    change(4, 1, -turn, -b[:, 0] + tiny)
    change(5, 1, np.zeros((n, 2)), np.where(rng.random(n) < 0.5, 1.0, 0.0))
    for row in range(k):
        change(6, row, a[:, row], -np.sum(a[:, row] * inside, axis=-1))
        change(7, row, a[:, row], np.abs(b[:, row]) - np.sum(a[:, row] * nominal, axis=-1))
    change(7, 0, a[:, 0], -np.sum(a[:, 0] * nominal, axis=-1))
    change(8, 1, -a[:, 0], -b[:, 0] - tiny)
    return _as_float32(nominal, a, b)


def twin_problems(rng, n, k=8):
    """Draw two binding rows almost alike: turned by 1e-7.5 to 1e-2.5 about the answer, apart by 1e-8 to 1e-5."""
    nominal, a, b = (np.float64(v) for v in random_problems(rng, n, k))
    b = np.abs(b)
    b[:, 0] = -np.sum(a[:, 0] * nominal, axis=-1) - rng.uniform(0, 0.7, size=n) * reach(a)[:, 0]
    turn = 10.0 ** rng.uniform(-7.5, -2.5, size=n)
    apart = 10.0 ** rng.uniform(-8, -5, size=n) * rng.choice([-1, 1], size=n)
    unit = a[:, 0] / np.sqrt(WEIGHTS)
    turned = np.stack([unit[:, 0] - turn * unit[:, 1], unit[:, 1] + turn * unit[:, 0]], axis=-1)
    gap = np.sum(a[:, 0] * nominal, axis=-1) + b[:, 0]
    foot = nominal - (gap / np.sum(unit**2, axis=-1))[:, None] * a[:, 0] / WEIGHTS
    a[:, 1] = turned * np.sqrt(WEIGHTS)
    b[:, 1] = -np.sum(a[:, 1] * foot, axis=-1) + apart * reach(a)[:, 0]
    return _as_float32(nominal, a, b)


def _as_float32(*arrays):
    return tuple(np.float32(v) for v in arrays)
