"""Equilibria of matrix games: known ones, the certificate, and scipy's linear programming as a second opinion."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from outlast.evaluate.nash import equilibrium

# Equal up to the rounding of a few dozen float64 pivots.
EXACT = 1e-9


def by_linear_programming(payoff):
    """Return the value of a game: the most that a row mixture guarantees."""
    m, n = payoff.shape
    found = linprog(
        c=[*[0.0] * m, -1.0],
        A_ub=np.hstack([-payoff.T, np.ones((n, 1))]),
        b_ub=np.zeros(n),
        A_eq=[[*[1.0] * m, 0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)],
    )
    return -found.fun


def test_rock_paper_scissors_is_even():
    found = equilibrium(np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]))
    assert found.row == pytest.approx([1 / 3] * 3, abs=EXACT)
    assert found.column == pytest.approx([1 / 3] * 3, abs=EXACT)
    assert found.value == pytest.approx(0.0, abs=EXACT)


def test_a_two_by_two_game_has_the_mixture_of_the_formula():
    # Without a saddle point: row = (d - c) / (a - b - c + d), value = (ad - bc) / (a - b - c + d).
    found = equilibrium(np.array([[0.9, 0.2], [0.3, 0.6]]))
    assert found.row == pytest.approx([0.3, 0.7], abs=EXACT)
    assert found.column == pytest.approx([0.4, 0.6], abs=EXACT)
    assert found.value == pytest.approx(0.48, abs=EXACT)


def test_a_dominated_strategy_is_not_played():
    found = equilibrium(np.array([[0.5, 0.6], [0.1, 0.2], [0.4, 0.9]]))
    assert found.row[1] == 0.0
    assert (found.low, found.high) == pytest.approx((0.5, 0.5), abs=EXACT)


def test_a_saddle_point_and_one_cell():
    assert equilibrium(np.array([[0.2, 0.5], [0.4, 0.7]])).row.tolist() == [0.0, 1.0]
    alone = equilibrium(np.array([[0.37]]))
    assert (alone.low, alone.high, alone.row[0], alone.column[0]) == (0.37, 0.37, 1.0, 1.0)


def test_equal_payoffs_are_any_mixture():
    found = equilibrium(np.full((3, 4), 0.25))
    assert found.value == pytest.approx(0.25, abs=EXACT)
    assert found.gap == pytest.approx(0.0, abs=EXACT)


@given(st.integers(1, 13), st.integers(1, 13), st.integers(0, 2**32 - 1), st.sampled_from([8, 100, 10**6]))
def test_random_games_agree_with_linear_programming_and_certify_it(m, n, seed, games):
    # Rates of few games have many ties, which is where a simplex method can cycle.
    payoff = np.random.default_rng(seed).integers(0, games + 1, (m, n)) / games
    found = equilibrium(payoff)
    assert found.value == pytest.approx(by_linear_programming(payoff), abs=1e-7)
    assert -EXACT <= found.gap <= EXACT
    assert found.row.sum() == pytest.approx(1.0) and found.column.sum() == pytest.approx(1.0)
    assert found.row.min() >= 0.0 and found.column.min() >= 0.0


def test_what_is_no_matrix_is_refused():
    for wrong in (np.zeros(3), np.zeros((0, 2)), np.array([[np.nan]])):
        with pytest.raises(ValueError, match="payoff matrix"):
            equilibrium(wrong)
