"""The equilibrium of a zero-sum matrix game, by an exact simplex method that certifies its own answer.

Used on matrices of capture rates between past policies: the rows are pursuers, who want it high.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

ZERO = 1e-12


class Equilibrium(NamedTuple):
    """Mixed strategies of both sides and what they guarantee.

    The row player gets at least `low` whatever the column plays, the column player concedes at most `high`;
    `high - low` is the certificate: it is zero at an equilibrium and nowhere else.
    """

    row: Float[np.ndarray, " m"]
    column: Float[np.ndarray, " n"]
    low: float
    high: float

    @property
    def value(self) -> float:
        """Return the value of the game."""
        return (self.low + self.high) / 2

    @property
    def gap(self) -> float:
        """Return how far the strategies are from equilibrium, in units of the matrix."""
        return self.high - self.low


def equilibrium(payoff: Float[np.ndarray, "m n"]) -> Equilibrium:
    """Return an equilibrium of the game in which the row player maximises `payoff`.

    With all payoffs above zero, the column's strategy is y / sum(y) for the y >= 0 of the largest sum with
    payoff @ y <= 1, and the row's is the same multiple of the dual prices (Dantzig 1951).
    """
    matrix = np.asarray(payoff, dtype=float)
    if matrix.ndim != 2 or matrix.size == 0 or not np.isfinite(matrix).all():
        raise ValueError(f"a payoff matrix is finite and has rows and columns, not of shape {matrix.shape}")
    spread = np.ptp(matrix)
    scaled = (matrix - matrix.min()) / (spread if spread > 0 else 1.0) + 1.0
    prices, shares = _largest_sum(scaled)
    row, column = _mixture(prices), _mixture(shares)
    return Equilibrium(row, column, float(np.min(row @ matrix)), float(np.max(matrix @ column)))


def _mixture(weights: np.ndarray) -> np.ndarray:
    weights = np.where(weights > ZERO, weights, 0.0)
    return weights / weights.sum()


def _largest_sum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximise sum(y) over y >= 0 with matrix @ y <= 1; return the dual prices and y.

    The tableau starts at y = 0 with the slacks as basis. Bland's rule (the lowest index enters, and among
    ties the lowest leaves) cannot cycle, so the loop ends.
    """
    m, n = matrix.shape
    table = np.zeros((m + 1, n + m + 1))
    table[:m, :n], table[:m, n : n + m], table[:m, -1] = matrix, np.eye(m), 1.0
    table[m, :n] = -1.0
    basis = np.arange(n, n + m)
    while np.any(table[m, :-1] < -ZERO):
        enters = int(np.argmax(table[m, :-1] < -ZERO))
        column = table[:m, enters]
        ratios = np.full(m, np.inf)
        np.divide(table[:m, -1], column, out=ratios, where=column > ZERO)
        tied = np.flatnonzero(ratios <= ratios.min() + ZERO)
        leaves = tied[np.argmin(basis[tied])]
        table[leaves] /= table[leaves, enters]
        others = np.arange(m + 1) != leaves
        table[others] -= np.outer(table[others, enters], table[leaves])
        basis[leaves] = enters
    solution = np.zeros(n + m)
    solution[basis] = table[:m, -1]
    return table[m, n : n + m], solution[:n]
