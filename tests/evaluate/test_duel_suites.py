"""The suites that measure a pair: head to head, all against all, and best responses, on tiny games."""

import functools
import json

import duels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.evaluate.crossplay import cross_play
from outlast.evaluate.duel_suites import head_to_head
from outlast.evaluate.exploit import exploit

SEEDS = 2


def stacked(program, n):
    """Train seeds of a program for n iterations; return their states as a stack."""
    runner = duels.runner(program)
    states = [runner.run(runner.init(jnp.uint32(seed)), n)[0][-1] for seed in range(SEEDS)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@pytest.fixture(scope="module")
def pair():
    """A tiny duel after six iterations: (program, states)."""
    program = duels.selfplay()
    return program, stacked(program, 6)


def certain(radius_m):
    """Return a game that is decided from the start: all are caught at once, or none can be."""
    level = {"capture_radius_m": radius_m, "spawn_min_m": 2.5, "spawn_max_m": 3.0}
    return duels.tiny(arena={"level": level})


@functools.cache
def documents(radius_m):
    """Measure a decided game with all suites; the states are untrained."""
    program = certain(radius_m)
    states = stacked(program, 0)
    found = {
        "head-to-head": head_to_head(program, states.learners, 8),
        "cross-play": cross_play(program, states, 8),
    }
    if radius_m > 1:
        found["exploit"] = exploit(program, states, 8, 1)
    return json.loads(json.dumps(found, allow_nan=False))


@pytest.mark.parametrize(("radius_m", "rate", "time_s"), [(20.0, 1.0, 0.05), (0.01, 0.0, None)])
def test_a_decided_game_is_measured_as_it_is(radius_m, rate, time_s):
    found = documents(radius_m)
    for suffix in ("", "_sampled"):
        match = found["head-to-head"]
        assert match["sr_p" + suffix]["per_seed"] == [rate] * SEEDS
        assert match["ne_gap" + suffix]["per_seed"] == [1.0] * SEEDS
        assert match["capture_time_s" + suffix]["mean"] == pytest.approx(time_s)
    assert found["head-to-head"]["games"] == 500
    assert found["cross-play"]["value"]["per_seed"] == [rate] * SEEDS
    if "exploit" not in found:
        return
    # Nobody can gain where nothing can change.
    best = found["exploit"]
    assert best["nash_conv"]["per_seed"] == [0.0] * SEEDS
    assert [best["best_response"][name]["per_seed"] for name in ("pursuer", "evader")] == [[0.0] * SEEDS] * 2
    assert best["sr_p"]["per_seed"] == [rate] * SEEDS


def test_head_to_head_is_the_same_again_and_depends_on_the_players(pair):
    program, states = pair
    first = head_to_head(program, states.learners, 8)
    assert first == head_to_head(program, states.learners, 8)
    other = jax.tree.map(lambda leaf: leaf[::-1], states.learners)
    turned = head_to_head(program, other, 8)
    assert turned["sr_p_sampled"]["per_seed"] == first["sr_p_sampled"]["per_seed"][::-1]
    assert sum(bucket["games"] for bucket in first["buckets"]) == first["games"]


def test_cross_play_has_a_row_for_every_chosen_pursuer_and_the_live_pair_is_last(pair):
    program, states = pair
    found = cross_play(program, states, 64)
    for seed, matrix in enumerate(found["matrix"]):
        shape = tuple(len(found["entries"][name][seed]) for name in ("pursuer", "evader"))
        assert np.shape(matrix) == shape == (5, 5)
        assert found["live"]["per_seed"][seed] == matrix[-1][-1]
        assert [found["entries"][name][seed][-1] for name in ("pursuer", "evader")] == [6, 6]
        low = max(min(row) for row in matrix)
        high = min(max(column) for column in zip(*matrix, strict=True))
        # The value of a matrix game lies between what pure strategies guarantee.
        assert low - 1e-6 <= found["value"]["per_seed"][seed] <= high + 1e-6
        for name in ("pursuer", "evader"):
            assert sum(found["mixture"][name][seed]) == pytest.approx(1.0)
    assert found["duality_gap"] < 1e-6
