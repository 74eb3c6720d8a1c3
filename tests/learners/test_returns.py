"""Advantages against a slow reference, hand arrays, and what they reduce to."""

import jax
import numpy as np
import pytest

from outlast.learners.returns import advantages, explained_variance

T, B = 9, 6
# Sums of up to nine numbers of order ten in float32, whose spacing there is 1e-6.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
fast = jax.jit(advantages, static_argnames=("discount", "trace"))


def drawn(seed, ends=0.15):
    rng = np.random.default_rng(seed)
    rewards, values, successors = rng.normal(0, 3, (3, T, B)).astype(np.float32)
    draw = rng.random((T, B))
    return rewards, values, successors, draw < ends, (draw >= ends) & (draw < 2 * ends)


def by_the_book(rewards, values, successors, terminated, truncated, *, discount, trace):
    """Sum the discounted temporal-difference errors of each step forward to the end of its episode."""
    result = np.zeros((T, B))
    for b in range(B):
        for start in range(T):
            weight = 1.0
            for t in range(start, T):
                bootstrap = 0.0 if terminated[t, b] else float(successors[t, b])
                result[start, b] += weight * (rewards[t, b] + discount * bootstrap - values[t, b])
                if terminated[t, b] or truncated[t, b]:
                    break
                weight *= discount * trace
    return result


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("discount", "trace"), [(0.99, 0.95), (0.9, 0.0), (0.9, 1.0), (1.0, 1.0), (0.0, 0.5)]
)
def test_agrees_with_the_slow_reference(seed, discount, trace):
    inputs = drawn(seed)
    expected = by_the_book(*inputs, discount=discount, trace=trace)
    np.testing.assert_allclose(fast(*inputs, discount=discount, trace=trace), expected, **CLOSE)


def column(*numbers, kind=np.float32):
    return np.array(numbers, kind)[:, None]


def test_by_hand_with_no_end():
    # errors: 1 + 0.5 x 4 - 2 = 1; 2 + 0.5 x 6 - 4 = 1; 3 + 0.5 x 8 - 6 = 1
    gains = fast(
        column(1, 2, 3),
        column(2, 4, 6),
        column(4, 6, 8),
        *[column(0, 0, 0, kind=bool)] * 2,
        discount=0.5,
        trace=0.5,
    )
    np.testing.assert_array_equal(gains[:, 0], [1.3125, 1.25, 1.0])


@pytest.mark.parametrize(("terminates", "expected"), [(True, [0.5, -2.0, 1.0]), (False, [1.25, 1.0, 1.0])])
def test_by_hand_with_an_end_in_the_middle(terminates, expected):
    # A termination drops the 0.5 x 6 of its step, a truncation keeps it; the trace is cut at both.
    end, none = column(0, 1, 0, kind=bool), column(0, 0, 0, kind=bool)
    flags = (end, none) if terminates else (none, end)
    gains = fast(column(1, 2, 3), column(2, 4, 6), column(4, 6, 8), *flags, discount=0.5, trace=0.5)
    np.testing.assert_array_equal(gains[:, 0], expected)


def test_a_trace_of_one_is_monte_carlo():
    rewards, values, _, _, _ = drawn(1)
    terminated = np.zeros((T, B), bool)
    terminated[-1] = True
    chained = np.concatenate([values[1:], values[:1]])  # the last is not used: the game is over
    gains = fast(rewards, values, chained, terminated, ~np.ones((T, B), bool), discount=0.9, trace=1.0)
    powers = 0.9 ** np.arange(T)[:, None]
    returns = np.stack([(rewards[t:] * powers[: T - t]).sum(axis=0) for t in range(T)])
    np.testing.assert_allclose(gains + values, returns, **CLOSE)


def test_a_trace_of_zero_is_the_temporal_difference_error():
    rewards, values, successors, terminated, truncated = drawn(2)
    gains = fast(rewards, values, successors, terminated, truncated, discount=0.9, trace=0.0)
    np.testing.assert_allclose(gains, rewards + 0.9 * successors * ~terminated - values, **CLOSE)


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nothing_passes_an_end_backwards(kind):
    rewards, values, successors, *_ = drawn(3)
    end, none = np.zeros((T, B), bool), np.zeros((T, B), bool)
    end[4] = True
    flags = (end, none) if kind == "terminated" else (none, end)
    before = fast(rewards, values, successors, *flags, discount=0.99, trace=0.95)
    for changed in (rewards, values, successors):
        changed[5:] += 100.0
    after = fast(rewards, values, successors, *flags, discount=0.99, trace=0.95)
    np.testing.assert_array_equal(before[:5], after[:5])
    assert np.abs(np.asarray(before[5:]) - np.asarray(after[5:])).min() > 0.1


def test_explained_variance():
    actual = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    assert float(explained_variance(actual, actual)) == 1.0
    assert float(explained_variance(np.full(4, 2.5, np.float32), actual)) == pytest.approx(0.0, abs=1e-6)
    assert float(explained_variance(-actual, actual)) == pytest.approx(-3.0, abs=1e-5)
    assert float(explained_variance(actual, np.ones(4, np.float32))) == 0.0
    # A constant error is no lack of explanation: variance does not see it.
    assert float(explained_variance(actual + 5, actual)) == pytest.approx(1.0, abs=1e-6)
