"""What keeps a pair from falling apart: each mechanism does what it says, in every schedule that it supports."""

import dataclasses
import itertools

import duels
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.selfplay import balance as balances
from outlast.selfplay import rollback as rollbacks
from outlast.selfplay.config import BilateralRollbackConfig, CollapseConfig, EvaluationConfig

SCHEDULES = {"together": duels.ALONE, "micro": duels.MICRO, "phases": duels.PHASES}
NAMES = ("pursuer", "evader")


@pytest.fixture(scope="module", params=SCHEDULES)
def run(request):
    """Fourteen iterations of a program with stabilisers: (program, runner, states, metrics)."""
    program = SCHEDULES[request.param]
    runner = duels.runner(program)
    return program, runner, *runner.run(runner.init(jnp.uint32(6)), 14)


def changed(state, where, value):
    return eqx.tree_at(where, state, value)


def learns(before, after, name):
    return int(after.learners[name].updates) > int(before.learners[name].updates)


# Bilateral rollback


def a_rolling(keep=3, filled=3, **fields):
    """Return copies that are numbered 0 (newest) to keep - 1, and their rules."""
    config = BilateralRollbackConfig(enabled=True, keep=keep, depth=min(keep, 2), window=100, **fields)
    learners = {name: jnp.float32(9) for name in NAMES}
    rolling = rollbacks.first_rolling(learners, config)
    copies = {name: jnp.arange(keep, dtype=jnp.float32) + 10 * i for i, name in enumerate(NAMES)}
    return dataclasses.replace(rolling, copies=copies, filled=jnp.int32(filled)), learners, config


def test_a_copy_goes_in_front_and_the_oldest_falls_out():
    rolling, _, _ = a_rolling(filled=2)
    learners = {"pursuer": jnp.float32(7), "evader": jnp.float32(8)}
    assert rollbacks.saved(rolling, learners, jnp.bool_(False)).copies["pursuer"].tolist() == [0, 1, 2]
    after = rollbacks.saved(rolling, learners, jnp.bool_(True))
    assert (after.copies["pursuer"].tolist(), after.copies["evader"].tolist()) == ([7, 0, 1], [8, 10, 11])
    assert int(after.filled) == 3
    assert int(rollbacks.saved(after, learners, jnp.bool_(True)).filled) == 3


@pytest.mark.parametrize(("filled", "expected", "left"), [(3, 1, [1, 2]), (2, 1, [1]), (1, 0, [0])])
def test_a_rollback_goes_back_by_its_depth_or_as_far_as_there_are_copies(filled, expected, left):
    rolling, learners, config = a_rolling(filled=filled)
    rolling = dataclasses.replace(rolling, episodes=jnp.float32(100), captures=jnp.float32(0))
    active = {"pursuer": jnp.bool_(True), "evader": jnp.bool_(False)}
    now, at = jnp.bool_(True), jnp.int32(50)
    after, restored = rollbacks.rolled_back(rolling, learners, now, at, active, config)
    assert (float(restored["pursuer"]), float(restored["evader"])) == (expected, expected + 10)
    assert after.copies["pursuer"][: int(after.filled)].tolist() == left
    assert (int(after.count), int(after.rolled_back_at), float(after.episodes)) == (1, 50, 0)


def test_one_sided_rollback_spares_the_role_that_did_not_learn():
    rolling, learners, config = a_rolling(bilateral=False)
    active = {"pursuer": jnp.bool_(False), "evader": jnp.bool_(True)}
    now, at = jnp.bool_(True), jnp.int32(50)
    _, restored = rollbacks.rolled_back(rolling, learners, now, at, active, config)
    assert (float(restored["pursuer"]), float(restored["evader"])) == (9, 11)


@pytest.mark.parametrize(
    ("episodes", "captures", "entropy", "since", "expected"),
    [
        (100, 50, 0.0, 99, False),
        (100, 2, 0.0, 99, True),
        (100, 3, 0.0, 99, False),
        (100, 98, 0.0, 99, True),
        (99, 0, 0.0, 99, False),
        (0, 0, -2.1, 99, True),
        (100, 0, -2.1, 4, False),
        (100, 0, -2.1, 5, True),
    ],
)
def test_health_is_a_full_window_a_rate_within_bounds_and_some_exploration(
    episodes, captures, entropy, since, expected
):
    rolling, _, config = a_rolling()
    rolling = dataclasses.replace(
        rolling,
        episodes=jnp.float32(episodes),
        captures=jnp.float32(captures),
        rolled_back_at=jnp.int32(100),
    )
    found = rollbacks.unhealthy(rolling, jnp.float32(entropy), jnp.int32(100 + since), 5, config)
    assert bool(found) == expected


def test_the_window_forgets_so_that_it_never_holds_more_than_its_size():
    rolling, _, _ = a_rolling()
    for _ in range(20):
        rolling = rollbacks.observed(rolling, jnp.float32(30), jnp.float32(30), 100)
    for _ in range(4):
        rolling = rollbacks.observed(rolling, jnp.float32(100), jnp.float32(0), 100)
    assert float(rolling.episodes) == pytest.approx(100)
    # Four times the window of lost games leaves 1/16 of what was before.
    assert float(rolling.captures) == pytest.approx(100 / 16)


def test_a_collapse_in_any_schedule_brings_the_copies_back(run):
    program, runner, states, _ = run
    collapsed = changed(
        states[-1],
        lambda s: (s.contest.rolling.episodes, s.contest.rolling.captures),
        (jnp.float32(1e6), jnp.float32(0)),
    )
    (after,), metrics = runner.run(collapsed, 1)[0][1:], runner.run(collapsed, 1)[1]
    rules, rolling = program.config.selfplay.stabilisers.rollback, collapsed.contest.rolling
    back = min(rules.depth, int(rolling.filled)) - 1
    assert int(rolling.filled) > 1
    assert metrics[0]["contest/rollbacks"] == 1
    for name in NAMES:
        copy = jax.tree.map(lambda leaf: leaf[back], rolling.copies[name])
        frozen = program.config.selfplay.schedule.freeze == name and not rules.bilateral
        expected = collapsed.learners[name] if frozen else copy
        assert duels.digest(after.learners[name]) == duels.digest(expected)


def test_without_a_collapse_nothing_is_rolled_back(run):
    _, _, states, metrics = run
    assert {m["contest/rollbacks"] for m in metrics} == {0}
    assert int(states[0].contest.rolling.filled) == 1
    assert int(states[-1].contest.rolling.filled) > 2


# Collapse: restore by panel score

COLLAPSE = {
    kind: duels.selfplay(
        schedule={"kind": kind} | ({} if kind == "together" else {length: duels.STEPS}),
        evaluation={"every_steps": duels.STEPS, "games": 15, "panel_games": 16},
        stabilisers={"collapse": {"enabled": True, "threshold": 0.5, "streak": 2}},
    )
    for kind, length in (("together", ""), ("micro", "micro_phase_steps"), ("phases", "phase_steps"))
}


@pytest.mark.parametrize("kind", COLLAPSE)
def test_a_role_that_keeps_losing_gets_its_best_by_panel_back_and_the_other_goes_on(kind):
    runner = duels.runner(COLLAPSE[kind])
    states, metrics = runner.run(runner.init(jnp.uint32(1)), 12)
    best, streak, restores = np.full(2, -1.0), np.zeros(2), 0
    for measures, after in zip(metrics, states[1:], strict=True):
        rate = measures["evaluation/capture_rate"]
        panel = np.array([measures[f"evaluation/panel_{name}"] for name in NAMES])
        streak = np.where(np.array([rate, 1 - rate]) < 0.5, streak + 1, 0)
        for role, name in enumerate(NAMES):
            kept, now = after.contest.best[name], after.learners[name]
            if streak[role] >= 2:
                assert duels.digest(now) == duels.digest(kept)
                streak[role], restores = 0, restores + 1
            elif panel[role] > best[role]:
                assert duels.digest(now) == duels.digest(kept)
        best = np.maximum(best, panel)
        assert after.contest.balance.best_panel.tolist() == pytest.approx(best.tolist())
    assert restores > 1
    assert metrics[-1]["contest/restores"] == restores


def test_what_is_restored_is_older_where_the_panel_score_was_lost():
    runner = duels.runner(COLLAPSE["together"])
    state = runner.init(jnp.uint32(1))
    # A score that nothing reaches: the best is what is kept here, whatever happens.
    kept = jax.tree.map(lambda leaf: leaf + 1, state.contest.best["evader"])
    doctored = changed(
        state,
        lambda s: (s.contest.best["evader"], s.contest.balance.best_panel, s.contest.balance.losing_streak),
        (kept, jnp.full(2, 2.0), jnp.full(2, 50)),
    )
    (after,), metrics = runner.run(doctored, 1)[0][1:], runner.run(doctored, 1)[1]
    lost = metrics[0]["evaluation/capture_rate"] > 0.5
    assert (duels.digest(after.learners["evader"]) == duels.digest(kept)) == lost
    assert metrics[0]["contest/restores"] == 1


# Noise floor


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_noise_of_whoever_learns_is_held_above_its_floor(kind):
    program = SCHEDULES[kind]
    runner = duels.runner(program)
    states, _ = runner.run(runner.init(jnp.uint32(0)), 6)
    floor = program.config.selfplay.stabilisers.entropy_floor.log_std
    quiet = changed(
        states[-1],
        lambda s: [s.learners[name].network.log_std for name in NAMES],
        [jnp.full_like(states[-1].learners[name].network.log_std, floor - 0.7) for name in NAMES],
    )
    (after,) = runner.run(quiet, 1)[0][1:]
    for name in NAMES:
        log_std = np.asarray(after.learners[name].network.log_std)
        # An update moves it by far less than 0.5.
        assert (log_std >= floor).all() if learns(quiet, after, name) else (log_std < floor - 0.5).all()
    assert any(learns(quiet, after, name) for name in NAMES)


# Elastic weight consolidation and novelty, in the whole program


def test_the_anchor_is_placed_at_an_advance_and_pulls_from_then_on(run):
    _, _, states, metrics = run
    placed = [float(s.contest.anchor.placed) for s in states]
    advanced = [int(s.contest.curriculum.advances) for s in states]
    assert placed == [float(n > 0) for n in advanced] and placed[-1] == 1.0
    for i in range(1, len(states)):
        anchor, before = states[i].contest.anchor, states[i - 1].contest.anchor
        if advanced[i] > advanced[i - 1]:
            network = states[i].learners["evader"].network
            assert duels.digest(anchor.theta.mean) == duels.digest(network.mean)
            assert min(float(jnp.max(leaf)) for leaf in jax.tree.leaves(anchor.fisher.mean)) > 0
        else:
            assert duels.digest(anchor) == duels.digest(before)
        penalty = metrics[i - 1].get("evader/penalty", 0.0)
        # In a cold start there is no penalty yet, so its measure says nothing.
        if not np.isnan(penalty) and learns(states[i - 1], states[i], "evader"):
            # The first update after a placement is at the anchor itself; by the end of the pass it has left it.
            assert (penalty > 0) == (placed[i - 1] > 0)


def test_a_stronger_anchor_holds_the_evader_closer_and_leaves_the_pursuer_alone(run):
    program, runner, states, _ = run
    from_ = next(
        s for s, after in itertools.pairwise(states) if s.contest.anchor.placed and learns(s, after, "evader")
    )
    heavy = changed(
        from_, lambda s: s.contest.anchor.fisher, jax.tree.map(lambda f: f * 1e4, from_.contest.anchor.fisher)
    )
    free = changed(
        from_, lambda s: s.contest.anchor.fisher, jax.tree.map(jnp.zeros_like, from_.contest.anchor.fisher)
    )

    def moved(start):
        (after,) = runner.run(start, 1)[0][1:]
        anchor = start.contest.anchor.theta.mean.weight
        gap = after.learners["evader"].network.mean.weight - anchor
        # In the Fisher metric: weights that do not matter are free to go.
        return float(jnp.sum(from_.contest.anchor.fisher.mean.weight * gap**2)), after

    (held, a), (unheld, b) = moved(heavy), moved(free)
    assert held < unheld
    assert duels.digest(a.learners["pursuer"]) == duels.digest(b.learners["pursuer"])
    assert program.config.selfplay.stabilisers.ewc.enabled


def test_novelty_trains_its_predictor_never_its_target_and_pays_the_evader_only(run):
    program, runner, states, _ = run
    first = program.n_cold
    targets = {duels.digest(s.contest.novelty.target) for s in states}
    predictors = [duels.digest(s.contest.novelty.predictor) for s in states[first:]]
    assert len(targets) == 1 and len(set(predictors)) == len(predictors)
    at = next(
        s
        for s, after in zip(states[first + 1 :], states[first + 2 :], strict=False)
        if learns(s, after, "evader")
    )
    # Another predictor finds other things new.
    other = changed(
        at,
        lambda s: s.contest.novelty.predictor,
        jax.tree.map(lambda p: 3 * p, at.contest.novelty.predictor),
    )
    (a,), (b,) = runner.run(at, 1)[0][1:], runner.run(other, 1)[0][1:]
    assert duels.digest(a.learners["evader"]) != duels.digest(b.learners["evader"])
    assert duels.digest(a.learners["pursuer"]) == duels.digest(b.learners["pursuer"])


# Convergence

RULES = {"eta": 0.1, "consecutive": 2, "panel_games": 8, "panel_margin": 0.1}


def converging(evaluations, **rules):
    """Tell after which evaluations, of (capture rate, panel scores, at the last level), a pair counts as converged."""
    balance, found = balances.first_balance(), []
    for rate, panel, at_last in evaluations:
        balance = balances.after_evaluation(
            balance,
            jnp.float32(rate),
            jnp.array(panel),
            config=EvaluationConfig(**(RULES | rules)),
            collapse=CollapseConfig(),
            at_last_level=jnp.bool_(at_last),
        )
        found.append(bool(balance.converged))
    return found


EVEN, UNEVEN = (0.52, (0.5, 0.5), True), (0.6, (0.5, 0.5), True)


def test_convergence_is_balance_in_a_row_and_stays():
    assert converging([EVEN, UNEVEN, EVEN, EVEN, UNEVEN]) == [False, False, False, True, True]
    assert converging([EVEN, EVEN, EVEN], consecutive=3) == [False, False, True]
    assert converging([UNEVEN, UNEVEN], eta=0.3) == [False, True]


def test_convergence_needs_the_last_level_and_no_panel_score_lost():
    assert converging([(*EVEN[:2], False)] * 3) == [False] * 3
    lost = (0.52, (0.5, 0.35), True)
    assert converging([EVEN, lost, lost]) == [False] * 3
    assert converging([EVEN, lost], panel_margin=0.2) == [False, True]
    assert converging([EVEN, lost], panel_games=0, panel_margin=0.1) == [False, True]


def test_a_converged_pair_stops_learning_only_where_asked():
    for stop in (False, True):
        program = duels.selfplay(
            evaluation={
                "every_steps": duels.STEPS,
                "eta": 1.0,
                "consecutive": 2,
                "stop_when_converged": stop,
                "panel_games": 0,
            }
        )
        runner = duels.runner(program)
        states, metrics = runner.run(runner.init(jnp.uint32(0)), 4)
        assert [m["contest/converged"] for m in metrics] == [0, 1, 1, 1]
        moved = [learns(a, b, name) for a, b in itertools.pairwise(states) for name in NAMES]
        assert moved == [True] * 4 + [not stop] * 4
