"""Running moments are the moments of everything seen, however it was cut into batches."""

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

from outlast.learners.normalise import CLIP, no_moments, normalised, updated

step = jax.jit(updated)
D = 3
DATA = (
    np.random.default_rng(0)
    .normal([[5.0], [-2.0], [0.0]], [[1.0], [30.0], [1e-3]], (D, 600))
    .astype(np.float32)
)


@given(st.lists(st.sampled_from([1, 2, 5, 50]), min_size=1, max_size=12))
def test_merging_is_exact_for_every_cut(sizes):
    moments, place = no_moments(D), 0
    for size in sizes:
        moments = step(moments, DATA[:, place : place + size])
        place += size
    seen = DATA[:, :place].astype(np.float64)
    assert float(moments.count) == place
    # Twelve float32 merges: a dozen roundings of the mean, and of sums of squares that do not cancel.
    np.testing.assert_allclose(moments.mean, seen.mean(axis=1), rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(moments.squares / place, seen.var(axis=1), rtol=1e-4, atol=1e-9)


def test_a_large_mean_does_not_swallow_a_small_variance():
    """Sums of squares would lose this: 1e4 squared is 1e8, and float32 carries seven digits."""
    rng = np.random.default_rng(1)
    data = (1e4 + rng.normal(0, 1, (1, 4000))).astype(np.float32)
    moments = no_moments(1)
    for batch in np.split(data, 8, axis=1):
        moments = step(moments, batch)
    assert float(moments.squares[0]) / 4000 == pytest.approx(data.astype(float).var(), rel=1e-2)


def test_normalised_has_zero_mean_unit_variance_and_is_clipped():
    moments = step(no_moments(D), DATA)
    scaled = np.asarray(normalised(DATA, moments))
    np.testing.assert_allclose(scaled.mean(axis=1), 0.0, atol=2e-3)  # 5 / 1 in float32, over 600 samples
    # The third row has a variance of 1e-6, beside which the guard of 1e-8 is one per cent.
    np.testing.assert_allclose(scaled.std(axis=1), 1.0, rtol=6e-3)
    far = np.asarray(normalised(DATA + 1e6, moments))
    assert far.min() == far.max() == CLIP


def test_nothing_seen_changes_nothing():
    np.testing.assert_array_equal(normalised(DATA, no_moments(D)), DATA)
