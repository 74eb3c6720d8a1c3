"""The town's program: lives, layouts, exploration, novelty and what the journal says of them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import residents

from outlast.config import BadInput
from outlast.learners import curiosity
from outlast.learners.curiosity import CuriosityConfig
from outlast.programs.lives import NO_STAGE, NOWHERE
from outlast.run.episodes import apart, episodes

CURIOUS = {"enabled": True, "weight": 1.0, "hidden": 8, "embedding": 4, "samples": 16}
EVERYTHING = {
    "replay": {"prioritised": True},
    "curiosity": CURIOUS | {"window": 8, "variance_below": 1e6, "least_survival": 0.05, "share_kept": 0.9},
    "curriculum": residents.CLIMBING,
    "generalisation": {"at_steps": 3 * residents.STEPS, "lives": 8},
}


@functools.cache
def everything():
    """Return the states and metrics of a run with every part, and with an event before the fourth iteration."""
    return residents.runner(residents.tiny(**EVERYTHING)).run(8)


@functools.cache
def remembering():
    return residents.runner(residents.recurrent()).run(6)


def stacked(states, part):
    return np.stack([np.asarray(part(state)) for state in states])


# --- lives


@pytest.mark.parametrize("run", [everything, remembering])
def test_the_table_of_lives_is_what_the_measures_count(run):
    _, metrics = run()
    for m in metrics:
        ended = m["lives/ended"]
        causes = m["lives/cause"][ended]
        assert m["episodes"] == ended.sum()
        assert m["deaths/limit"] == (causes == NOWHERE).sum()
        assert m["deaths/energy"] == (causes == 0).sum()
        assert (m["lives/survival"][ended][causes == NOWHERE] == residents.LIMIT).all()
        if ended.any():
            # Float32 means over at most 128 lives.
            assert m["episode/steps"] == pytest.approx(m["lives/survival"][ended].mean(), rel=1e-5)
            paid = (m["lives/extrinsic"] + m["lives/shaping"])[ended].mean()
            assert m["episode/return"] == pytest.approx(paid, rel=1e-4, abs=1e-5)
    assert sum(m["episodes"] for m in metrics) > 20


def test_ticks_are_lived_or_idle_and_each_end_costs_one():
    _, metrics = residents.runner(residents.scripted("random")).run(8)
    lived = residents.lives_of(metrics, "survival").sum()
    idle = sum(float(m["tick/idle"]) for m in metrics) * residents.STEPS
    unfinished = 8 * residents.LIMIT
    assert lived + idle <= 8 * residents.STEPS <= lived + idle + unfinished
    ends = sum(int(m["episodes"]) for m in metrics)
    assert ends - 8 <= round(idle) <= ends


def test_every_life_becomes_a_line_with_its_place():
    _, metrics = everything()
    together = {name: value[None] for name, value in metrics[-1].items()}
    measures, tables = apart(together)
    assert not any(name.startswith("lives/") for name in measures)
    lines = list(episodes(8, tables, [3]))
    assert len(lines) == metrics[-1]["episodes"] > 0
    for line in lines:
        at = line["tick"], line["world"]
        assert metrics[-1]["lives/ended"][at]
        assert line["survival"] == metrics[-1]["lives/survival"][at]
        assert (line["seed"], line["iteration"]) == (3, 8)
    assert list(episodes(8, {}, [3])) == []


def test_nothing_in_the_state_grows():
    for run in (everything, remembering):
        states, _ = run()
        sizes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)] for state in states]
        assert all(size == sizes[0] for size in sizes)


def test_learning_waits_for_the_first_transitions_and_then_keeps_its_pace():
    states, _ = residents.runner(residents.tiny(replay={"starts": 200, "updates": 3})).run(3)
    # Four rounds an iteration, of 32 transitions each: the seventh is the first with 200.
    assert [int(s.learner.updates) for s in states] == [0, 0, 3 * 2, 3 * 6]


# --- memory


def test_learning_never_touches_the_memory_of_play():
    """The first learning follows the second round, so with and without it the lives stand alike after that."""
    one = {"lives": {"horizon": 8}, "memory": {"burn_in": 0}, "replay": {"starts": 0}}
    kept = []
    for updates in (0, 4):
        program = residents.recurrent(**residents.merged(one, {"replay": {"updates": updates}}))
        states, _ = residents.runner(program).run(2)
        kept.append(states)
    a, b = (np.asarray(states[1].lives.memory) for states in kept)
    # Two programs, whose float32 sums may be in another order.
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    learners = [states[1].learner for states in kept]
    assert [int(learner.updates) for learner in learners] == [0, 4]
    assert np.abs(np.asarray(kept[0][1].lives.memory)).max() > 0


def test_memory_is_empty_at_the_beginning_of_a_life_and_stored_once_a_sequence():
    states, _ = remembering()
    for state in states[1:]:
        young = np.asarray(state.lives.town.age) == 0
        assert (np.asarray(state.lives.memory)[:, young] == 0).all()
        assert np.abs(np.asarray(state.lives.memory)[:, ~young]).max() > 0
    stored = np.asarray(states[-1].replay.memory)
    assert stored.shape == (256 // 8 // 4, 8, 2 * 4)
    assert np.abs(stored[: int(states[-1].replay.written) // 4]).max() > 0


# --- exploration


def test_epsilon_falls_linearly_to_its_end():
    program = residents.tiny(
        explore={"epsilon_start": 0.8, "epsilon_end": 0.2, "epsilon_steps": 4 * residents.STEPS}
    )
    _, metrics = residents.runner(program).run(6)
    found = [float(m["explore/epsilon"]) for m in metrics]
    assert found == pytest.approx([0.65, 0.5, 0.35, 0.2, 0.2, 0.2], abs=1e-6)
    assert float(program.epsilon(jnp.float32(0))) == pytest.approx(0.8)


def test_residents_only_do_what_is_legal():
    states, _ = everything()
    ticks = states[2].replay.ticks  # of the first two iterations, while most choices are random
    legal = np.take_along_axis(np.asarray(ticks.legal), np.asarray(ticks.action)[..., None], axis=-1)[..., 0]
    # What is "done" in an idle tick is done by nobody.
    assert (legal | np.asarray(ticks.idle)).all()
    assert len(set(np.asarray(ticks.action).ravel())) == 6


def test_without_epsilon_a_resident_is_greedy():
    never = {"epsilon_start": 0.0, "epsilon_end": 0.0}
    program = residents.tiny(explore=residents.merged(never, {"epsilon_steps": None}), replay={"updates": 0})
    states, _ = residents.runner(program).run(1)
    ticks, network = states[1].replay.ticks, states[0].learner.network
    for t in range(16):
        q = np.asarray(network(np.asarray(ticks.seen[t]).T))
        best = np.where(np.asarray(ticks.legal[t]).T, q, -np.inf).argmax(axis=0)
        lived = ~np.asarray(ticks.idle[t])
        np.testing.assert_array_equal(np.asarray(ticks.action[t])[lived], best[lived])


def test_lives_that_begin_anywhere_are_learnt_from_but_not_counted():
    program = residents.tiny(explore={"births": 1.0}, replay={"updates": 0}, curriculum=residents.CLIMBING)
    states, metrics = residents.runner(program).run(6)
    # The first eight were there before; all that were born later began anywhere.
    assert sum(int(m["episodes"]) for m in metrics) == len(residents.lives_of(metrics, "survival")) == 8
    assert sum(int(m["deaths/energy"] + m["deaths/limit"]) for m in metrics) == 8
    assert int(states[-1].stages.survival.count) <= 8
    assert (np.asarray(states[-1].lives.stage) == NO_STAGE).all()
    meters = np.stack(states[-1].lives.town.meters)
    assert len(np.unique(meters[0])) > 4  # energy, which every stage lets change
    assert len(np.unique(meters[2])) == 1  # money, which the first stage holds, begins as ever
    assert np.asarray(states[-1].replay.ticks.ended).sum() > 8


# --- novelty


def test_novelty_is_stored_apart_and_unweighted():
    """Whatever its weight, the same novelty is stored; it is weighed where it is learnt from, once."""
    runs = {}
    for weight in (0.5, 5.0):
        changes = {"curiosity": CURIOUS | {"weight": weight}, "replay": {"updates": 0}}
        runs[weight] = residents.runner(residents.tiny(**changes)).run(2)[0][-1]
    a, b = (np.asarray(runs[weight].replay.ticks.intrinsic) for weight in runs)
    np.testing.assert_array_equal(a, b)
    assert np.abs(a).max() > 0.1
    plain = residents.runner(residents.tiny(replay={"updates": 0})).run(2)[0][-1]
    np.testing.assert_array_equal(plain.replay.ticks.extrinsic, runs[0.5].replay.ticks.extrinsic)
    assert (np.asarray(plain.replay.ticks.intrinsic) == 0).all()


def test_the_weight_reaches_what_is_learnt():
    networks = []
    for weight in (0.0, 5.0):
        states, _ = residents.runner(residents.tiny(curiosity=CURIOUS | {"weight": weight})).run(2)
        networks.append(np.asarray(states[-1].learner.network.head.advantage.weight))
    assert not np.array_equal(*networks)


def test_the_novelty_of_lives_adds_up():
    states, metrics = everything()
    ticks = states[6].replay.ticks  # the ring holds two iterations, the fifth and the sixth
    assert (ticks.action.shape[0], int(states[6].replay.written)) == (32, 96)
    ended, idle, intrinsic = (np.asarray(part) for part in (ticks.ended, ticks.idle, ticks.intrinsic))
    table = np.concatenate([m["lives/intrinsic"] for m in metrics[4:6]])
    for world, total in enumerate(np.asarray(states[4].lives.intrinsic)):
        for t in range(32):
            total = 0.0 if idle[t, world] else total + intrinsic[t, world]
            if ended[t, world]:
                assert table[t, world] == pytest.approx(total, rel=1e-4, abs=1e-4)  # float32 sums of 40
    assert ended.any()


RULES = CuriosityConfig(
    enabled=True, weight=2.0, window=4, variance_below=50.0, least_survival=0.5, share_kept=0.9
)
anneal = jax.jit(curiosity.annealed, static_argnums=4)


def annealed(*lives, rules=RULES, interest=None):
    interest = curiosity.first_interest(rules) if interest is None else interest
    survival = np.zeros(8, "f4")
    survival[: len(lives)] = lives
    return anneal(interest, survival, np.arange(8) < len(lives), jnp.float32(100.0), rules)


@pytest.mark.parametrize(
    ("lives", "weight"),
    [
        ([90.0] * 3, 2.0),  # too few
        ([90.0] * 4, 2.0 * 0.9**4),
        ([100.0] * 4, 2.0 * 0.9**4),  # survivors count
        ([40.0] * 4, 2.0),  # alike, but short
        ([99.0, 61.0, 99.0, 61.0], 2.0),  # long, but not alike
        ([60.0, 62.0, 64.0, 66.0], 2.0 * 0.9**4),
        ([10.0] * 4 + [90.0] * 4, 2.0 * 0.9**8),  # only the window is looked at
    ],
)
def test_the_weight_shrinks_once_lives_are_long_and_alike(lives, weight):
    assert float(annealed(*lives).weight) == pytest.approx(weight, rel=1e-5)


def test_the_weight_shrinks_at_life_ends_only_and_not_at_all_without_annealing():
    steady = annealed(*[90.0] * 4)
    assert float(annealed(interest=steady).weight) == float(steady.weight)
    assert float(annealed(90.0, interest=steady).weight) == pytest.approx(2.0 * 0.9**5, rel=1e-5)
    never = CuriosityConfig(enabled=True, weight=2.0, anneal=False)
    assert float(annealed(*[90.0] * 8, rules=never).weight) == 2.0


def test_a_run_anneals_and_says_so():
    states, metrics = everything()
    weights = [float(m["curiosity/weight"]) for m in metrics]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] < weights[0]
    assert weights == [float(state.interest.weight) for state in states[1:]]


# --- layouts


def layouts(town, n=4, **changes):
    """Return the cells of the run and of every life in progress, after each iteration."""
    states, metrics = residents.runner(residents.scripted("random", town, **changes)).run(n)
    return (
        stacked(states, lambda s: s.cells),
        stacked(states, lambda s: s.lives.town.level.cells),
        metrics,
    )


def test_a_fixed_layout_is_the_given_one():
    cells = {"Bed": [0, 0], "Job": [1, 2]}
    run, lives, _ = layouts({"layout": {"policy": "fixed", "cells": cells}})
    assert (run == [0, 7]).all()
    assert (lives == np.array([0, 7])[:, None]).all()


def test_a_layout_of_the_run_is_drawn_once_a_seed():
    run, lives, _ = layouts({})
    assert (run == run[0]).all()
    assert (lives == run[0][:, None]).all()
    program = residents.scripted("random")
    others = {tuple(np.asarray(residents.runner(program).init(seed).cells)) for seed in range(6)}
    assert len(others) > 1


def test_a_layout_of_a_life_is_drawn_at_its_birth():
    _, lives, _ = layouts({"layout": {"policy": "per_episode"}})
    assert len({tuple(pair) for pair in lives.transpose(0, 2, 1).reshape(-1, 2)}) > 8


def test_the_event_draws_a_layout_once_and_measures_both_sides():
    event = {"at_steps": 2 * residents.STEPS - 5, "lives": 16}
    run, lives, metrics = layouts({}, n=5, generalisation=event)
    changed = [not np.array_equal(a, b) for a, b in itertools.pairwise(run)]
    # Due before the first iteration that begins at or after so many steps: the third.
    assert changed == [False, False, True, False, False]
    for i, m in enumerate(metrics):
        for side in ("before", "after"):
            value = float(m[f"generalisation/{side}"])
            assert (0 < value <= residents.LIMIT) if i == 2 else np.isnan(value)
    # A life keeps the layout it was born with; those born later have the new one.
    old, new = run[1], run[-1]
    either = (lives == old[:, None]).all(axis=1) | (lives == new[:, None]).all(axis=1)
    assert either.all()
    assert (lives[-1] == new[:, None]).all()


def test_the_event_does_not_happen_where_every_life_is_one():
    with pytest.raises(BadInput, match=r"generalisation\.at_steps has no effect"):
        residents.tiny({"layout": {"policy": "per_episode"}}, generalisation={"at_steps": 100})
