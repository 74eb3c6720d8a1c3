"""Rewards: each kind by hand, sparse payment, shaping and modifiers, and that living never pays less than dying."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.worlds.town.tables import INTERACT, LEFT, WAIT

from . import towns

KINDS = {
    "interoceptive": {"kind": "interoceptive"},
    "minimum": {"kind": "minimum", "base": 0.5},
    "weighted": {"kind": "weighted", "base": 1.0, "weights": {"energy": 0.5, "health": 0.5}, "center": 0.5},
    "constant": {"kind": "constant", "death_penalty": 100.0},
    "baseline": {"kind": "baseline"},
    "milestone": {"kind": "milestone", "death_penalty": 100.0},
}
CLOSE = 1e-5  # sums of a few float32 products below ten


def l1(reward):
    return towns.town("L1", reward=reward)


def rewards(world, state, actions):
    return [float(step.reward) for _, step in towns.play(world, state, actions)]


def test_alive_by_hand():
    worth = {
        "interoceptive": 0.595 * 0.399495,
        "minimum": 0.5 + 0.399495,
        "weighted": 1.0 + 0.5 * 0.095 + 0.5 * -0.100505,
        "constant": 1.0,
        "baseline": 0.0,
        "milestone": 0.0,
    }
    for kind, expected in worth.items():
        world = l1(KINDS[kind])
        state = towns.born(world, energy=0.601, health=0.4)
        assert rewards(world, state, [WAIT])[0] == pytest.approx(expected, abs=CLOSE), kind


def test_dead_by_hand():
    worth = dict.fromkeys(KINDS, 0.0) | {"constant": -100.0, "milestone": -100.0, "baseline": 1 - 100.0}
    for kind, expected in worth.items():
        world = l1(KINDS[kind])
        state = towns.born(world, energy=0.011)
        seen = towns.play(world, state, [WAIT, WAIT])
        assert bool(seen[1][1].terminated)
        # Dead in the second tick, so one tick was survived; the baseline at full difficulty is a hundred.
        assert float(seen[1][1].reward) == pytest.approx(expected, abs=CLOSE), kind


def test_milestones_fall_on_round_ages():
    world = l1({"kind": "milestone", "minor_ticks": 2, "minor": 0.5, "major_ticks": 4, "major": 5.0})
    assert rewards(world, towns.born(world), [WAIT] * 5) == [0.0, 0.5, 0.0, 5.5, 0.0]


def test_baseline_pays_a_survivor():
    world = l1({"kind": "baseline"})
    state = towns.born(world, given=towns.level(world, max_steps=3))
    assert rewards(world, state, [WAIT] * 3) == [0.0, 0.0, 3.0 - 3.0]
    state = towns.born(world, given=towns.level(world, max_steps=120), energy=1.0)
    _, steps = towns.player(world)(state, jnp.full(120, WAIT, jnp.int32))
    assert bool(steps.truncated[-1])
    np.testing.assert_allclose(np.asarray(steps.reward), [0.0] * 119 + [20.0], atol=1e-3)


def test_retirement_bonus_is_paid_at_the_age_of_retirement_only():
    world = towns.town("L0")
    for fields, bonus in (({"lifespan": 2}, 1.0), ({"max_steps": 2}, 0.0)):
        state = towns.born(world, given=towns.level(world, **fields))
        (_, first), (after, second) = towns.play(world, state, [WAIT, WAIT])
        assert bool(second.truncated)
        dense = towns.meter(world, after, "energy") * towns.meter(world, after, "health")
        assert float(second.reward) == pytest.approx(dense + bonus, abs=CLOSE)
        assert float(first.reward) < 1.0


def test_sparse_pays_the_same_total_later():
    world = towns.town("L1", reward={"sparse_ticks": 4})
    dense_state = towns.born(world, energy=0.08)
    sparse_state = towns.born(world, energy=0.08, given=towns.level(world, sparse=True))
    dense = towns.play(world, dense_state, [WAIT] * 14)
    sparse = towns.play(world, sparse_state, [WAIT] * 14)
    died = [bool(step.terminated) for _, step in sparse].index(True) + 1
    dense_rewards = np.array([float(step.reward) for _, step in dense])[:died]
    sparse_rewards = np.array([float(step.reward) for _, step in sparse])[:died]
    paid = [tick % 4 == 0 or tick == died for tick in range(1, died + 1)]
    assert (sparse_rewards > 0).tolist() == paid
    assert sparse_rewards.sum() == pytest.approx(dense_rewards.sum(), abs=CLOSE)
    assert float(sparse[died - 1][0].owed) == 0.0


def test_shaping_by_hand():
    terms = [
        {"kind": "above", "amount": 1.0, "meters": ["energy", "health"], "threshold": 0.5},
        {"kind": "balance", "amount": 10.0, "meters": ["energy", "health"], "threshold": 0.2},
        {"kind": "completion", "amount": 100.0, "place": "Job"},
        {"kind": "approach", "amount": 0.5, "place": "Job"},
    ]
    world = l1({"kind": "constant", "base": 0.0, "shaping": terms})
    corner = towns.level(world, cells=[20, *range(30, 39), 0, *range(40, 43)])
    job = towns.born(world, given=corner, at="Job", energy=0.9, health=0.9)
    ((_, step),) = towns.play(world, job, [INTERACT])
    assert float(step.shaping) == pytest.approx(1.0 + 10.0 + 100.0 + 0.5, abs=CLOSE)
    assert float(step.extrinsic) == 0.0
    assert float(step.reward) == float(step.shaping)
    far = towns.born(world, given=corner, at=(7, 7), energy=0.9, health=0.4)
    ((_, step),) = towns.play(world, far, [WAIT])
    assert float(step.shaping) == pytest.approx(0.0, abs=CLOSE)
    ((_, step),) = towns.play(world, towns.born(world, given=corner, at="Job", energy=0.001), [WAIT])
    assert bool(step.terminated)
    assert float(step.shaping) == 0.0


def test_modifiers_multiply_inside_their_range():
    modifiers = [
        {"meter": "energy", "high": 0.3, "factor": 0.0},
        {"meter": "health", "low": 0.5, "high": 0.8, "factor": 0.5},
        {"meter": "energy", "low": 0.6, "factor": 3.0},
    ]
    world = l1({"modifiers": modifiers})
    for energy, health, expected in ((0.2, 0.7, 0.0), (0.5, 0.7, 0.5), (0.5, 0.9, 1.0), (0.9, 0.7, 1.5)):
        ((_, step),) = towns.play(world, towns.born(world, energy=energy, health=health), [WAIT])
        assert float(step.novelty_factor) == pytest.approx(expected, abs=1e-6)


fractions = st.floats(0, 1, width=32)


@pytest.mark.parametrize("kind", KINDS)
@given(energy=fractions, health=fractions, fitness=fractions, age=st.integers(0, 498), depletion=fractions)
def test_a_surviving_life_is_never_worth_less_than_a_death(kind, energy, health, fitness, age, depletion):
    """Every tick alive pays at least nothing, and the last one at least what dying in it would have paid."""
    world = l1(KINDS[kind])
    given_level = towns.level(world, depletion=depletion, max_steps=age + 1)
    state = towns.born(world, given=given_level, energy=energy, health=health, fitness=fitness)
    state = dataclasses.replace(state, age=jnp.int32(age))
    doomed = dataclasses.replace(state, meters=(jnp.float32(0), *state.meters[1:]))
    ((_, ends),) = towns.play(world, state, [LEFT])
    ((_, dies),) = towns.play(world, doomed, [LEFT])
    assert bool(dies.terminated)
    if bool(ends.truncated):
        assert float(ends.reward) >= float(dies.reward)
        if kind != "baseline":
            assert float(ends.reward) >= 0.0
