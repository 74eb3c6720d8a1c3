"""How difficulty moves, and that it reaches the training games."""

import dataclasses

import duels
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.config import BadInput, validate
from outlast.programs.play import WARM, fresh_games
from outlast.selfplay import curriculum as curricula
from outlast.selfplay.config import CurriculumConfig, SelfPlayConfig
from outlast.worlds.arena import LevelConfig, level_of

STEPS = duels.STEPS


def config(**fields):
    return validate(CurriculumConfig, fields, source="test")


def level(size_m=20.0, **fields):
    return LevelConfig(width_m=size_m, height_m=size_m, **fields)


def test_the_discrete_table_on_20_by_20():
    expected = [(2, 5, 0), (5, 15, 0), (2, 5, 3), (5, 8, 3), (5, 12, 3), (2, 15, 3)]
    rows = curricula.stage_table(config(kind="discrete"), level())
    assert [(low, high, few) for low, high, few, _ in rows] == expected
    assert all(few == most for _, _, few, most in rows)


def test_the_discrete_table_on_10_by_10():
    # 0.8 of the diagonal is 11.314 m, 0.4 of that 4.525 m.
    rows = curricula.stage_table(config(kind="discrete", obstacles=2), level(10.0))
    expected = [(2, 5, 0), (4.525, 11.314, 0), (2, 5, 2), (4.525, 8, 2), (4.525, 11.314, 2), (2, 11.314, 2)]
    np.testing.assert_allclose([row[:3] for row in rows], expected, atol=5e-4)


def test_the_smooth_table_grows_by_its_increment_and_brings_obstacles_late():
    rules = config(kind="smooth", increment_m=2.0, min_obstacles=1, final_max_m=12.0)
    rows = curricula.stage_table(rules, level())
    assert rows == [(2, 5, 1, 1), (2, 7, 1, 1), (2, 9, 3, 3), (2, 11, 3, 3), (2, 12, 3, 3)]
    assert curricula.n_stages(rules, level()) == 5
    # The second run of the original: 5 to 15 m by 1 m is ten advances.
    assert curricula.n_stages(config(kind="smooth", increment_m=1.0), level()) == 11
    # A small arena ends earlier: at 0.8 of its diagonal.
    assert curricula.stage_table(rules, level(10.0))[-1][1] == pytest.approx(11.3137, abs=1e-4)
    assert curricula.stage_table(config(kind="smooth", start_max_m=3.0), level(4.0))[0][0] == 2.0


def test_a_level_is_the_base_with_the_stage_laid_over_it():
    base = level(evader_speed_mps=1.15)
    now = curricula.level_at(jnp.int32(3), config(kind="discrete"), base, level_of(base))
    assert [float(x) for x in (now.spawn_min_m, now.spawn_max_m)] == [5.0, 8.0]
    assert [int(x) for x in (now.obstacles_min, now.obstacles_max)] == [3, 3]
    assert float(now.evader_speed_mps) == np.float32(1.15)
    last = curricula.last_level(config(kind="discrete"), base)
    assert (last.spawn_min_m, last.spawn_max_m, last.obstacles_max) == (2.0, 15.0, 3)
    assert curricula.last_level(config(), base) == base


def stages(rules, rates, *, phases_between=1, base=None):
    """Tell the stage after each evaluation of given capture rates."""
    base = base or level()
    judge = jax.jit(lambda c, rate: curricula.after_evaluation(c, rate, rules, base)[0])
    state, seen = curricula.first_curriculum(), []
    for rate in rates:
        for _ in range(phases_between):
            state = curricula.counted(state, jnp.bool_(True))
        state = judge(state, jnp.float32(rate))
        seen.append(int(state.stage))
    return seen


DISCRETE = {"kind": "discrete"}


def test_the_capture_gate():
    assert stages(config(**DISCRETE), [0.7, 0.71, 0.5, 0.9]) == [0, 1, 1, 2]
    assert stages(config(**DISCRETE, capture_rate=0.4), [0.41]) == [1]


def test_the_dual_gate_asks_for_escapes_too():
    rules = config(**DISCRETE, gate="dual", capture_rate=0.5, min_escape_rate=0.2)
    assert stages(rules, [0.9, 0.85, 0.75, 0.4]) == [0, 0, 1, 1]


def test_the_balance_gate_asks_for_small_gaps_in_a_row():
    rules = config(**DISCRETE, gate="ne_gap", ne_gap=0.15, consecutive=3)
    # Gaps: 0.1, 0.1, 0.2, 0.1, 0.1, 0.0, 0.1, ...
    assert stages(rules, [0.55, 0.45, 0.6, 0.55, 0.55, 0.5, 0.55]) == [0, 0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("gate", [{}, {"gate": "ne_gap", "ne_gap": 1.0, "consecutive": 1}])
def test_no_gate_opens_before_its_phases_are_over(gate):
    rules = config(**DISCRETE, **gate, min_phases=4)
    assert stages(rules, [0.9] * 5, phases_between=2) == [0, 1, 1, 2, 2]


def test_the_last_stage_is_the_last():
    assert stages(config(**DISCRETE), [0.9] * 7) == [1, 2, 3, 4, 5, 5, 5]


def test_domination_by_the_pursuer_regresses():
    # The gate of two escapes in ten stays shut; an escape rate below 0.02 three times in a row goes back.
    rules = config(**DISCRETE, gate="dual", capture_rate=0.5, min_escape_rate=0.2)
    rates = [0.7, 1.0, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert stages(rules, rates) == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    rules = config(**DISCRETE, gate="dual", capture_rate=0.5, min_escape_rate=0.2, regress_after=2)
    assert stages(rules, [0.7, 1.0, 1.0]) == [1, 1, 0]
    rules = config(**DISCRETE, gate="dual", capture_rate=0.5, min_escape_rate=0.2, regress_escape_rate=0.0)
    assert stages(rules, [0.7, 1.0, 1.0, 1.0, 1.0]) == [1] * 5


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"min_phases": 2}, "min_phases has no effect with kind = none"),
        ({"kind": "discrete", "increment_m": 1.0}, "increment_m has no effect"),
        ({"kind": "discrete", "ne_gap": 0.2}, "ne_gap has no effect"),
        ({"kind": "discrete", "gate": "ne_gap", "capture_rate": 0.2}, "capture_rate has no effect"),
        ({"kind": "discrete", "gate": "dual"}, "dual needs min_escape_rate"),
        ({"kind": "discrete", "regress_escape_rate": 0.0, "regress_after": 2}, "regress_after has no effect"),
        ({"kind": "smooth", "start_max_m": 9.0, "final_max_m": 8.0}, "above final_max_m"),
        ({"kind": "discrete", "evader_first": True}, "evader_first has no effect"),
    ],
)
def test_options_that_would_do_nothing_are_refused(fields, complaint):
    with pytest.raises(BadInput, match=complaint):
        validate(SelfPlayConfig, {"curriculum": fields}, source="test")


def test_warm_start_with_a_frozen_evader_and_too_many_obstacles_are_refused():
    fields = {"curriculum": {"kind": "discrete", "warm_start_steps": 5}, "schedule": {"freeze": "evader"}}
    with pytest.raises(BadInput, match="warm_start_steps has no effect"):
        validate(SelfPlayConfig, fields, source="test")
    with pytest.raises(BadInput, match="asks for 3 obstacles"):
        duels.selfplay(curriculum={"kind": "discrete"})


@pytest.fixture(scope="module")
def phases():
    """Fifty iterations with a smooth curriculum of 1, 5 and 8 m, a quarter of the games one stage below."""
    run = duels.runner(duels.PHASES)
    return run.run(run.init(jnp.uint32(4)), 50)


def advances(states):
    """Tell the iterations after which the stage had risen."""
    at = [int(state.contest.curriculum.stage) for state in states]
    return [i for i in range(1, len(at)) if at[i] > at[i - 1]]


def test_an_advance_moves_the_training_games_and_running_episodes_keep_their_level(phases):
    states, metrics = phases
    assert [int(s.contest.curriculum.stage) for s in states][-1] == 2
    assert len(advances(states)) == 2
    largest = np.array([np.asarray(s.games.arena.level.spawn_max_m) for s in states])
    starts = np.array([np.asarray(s.games.start_distance_m) for s in states])
    assert (starts <= largest + 1e-3).all()
    step = np.array([np.asarray(s.games.arena.step) for s in states])
    for i in range(2, len(states) - 1):
        runs_on = step[i + 1] == step[i] + 8
        assert (largest[i + 1] == largest[i])[runs_on].all()
        assert (starts[i + 1] == starts[i])[runs_on].all()
    first, second = advances(states)
    assert set(largest[: first + 1].ravel().tolist()) == {1.0}
    # The iteration after an advance has games of both levels, begun before it and after it.
    assert set(largest[first + 1].tolist()) == {1.0, 5.0}
    assert set(largest[second + 3 :].ravel().tolist()) == {5.0, 8.0}
    assert starts[first].mean() < 1.0 < starts[first + 3 : second].mean() < starts[-10:].mean()
    seen = [m["episode/start_distance_m"] for m in metrics]
    assert np.nanmean(seen[2:first]) < 1.0 < 2.0 < np.nanmean(seen[second + 3 :])
    assert metrics[second]["contest/spawn_max_m"] == 8.0


def test_mixed_levels_keep_their_share_one_stage_below(phases):
    states, _ = phases
    program, second = duels.PHASES, advances(states)[1]
    now, below = duels_levels(states[-1].contest)
    games = fresh_games(program.config, program.world, now, below, jax.random.key(0), 48)
    largest = np.asarray(games.arena.level.spawn_max_m)
    assert np.mean(largest == 5.0) == 0.25 and np.mean(largest == 8.0) == 0.75
    # Which of them a world gets depends on when its game ends; both are among those that are played.
    played = np.array([np.asarray(s.games.arena.level.spawn_max_m) for s in states[second + 3 :]])
    assert 0.0 < np.mean(played == 5.0) < 0.5


def test_after_a_regress_the_mix_is_with_the_stage_below_too(phases):
    states, _ = phases
    contest = states[-1].contest
    for stage, expected in ((2, (8.0, 5.0)), (1, (5.0, 1.0)), (0, (1.0, 1.0))):
        at = dataclasses.replace(
            contest, curriculum=dataclasses.replace(contest.curriculum, stage=jnp.int32(stage))
        )
        now, below = duels_levels(at)
        assert (float(now.spawn_max_m), float(below.spawn_max_m)) == expected


def duels_levels(contest):
    from outlast.programs.contest import levels

    return levels(contest, duels.PHASES.config)


def test_an_advance_starts_an_evader_phase_at_once(phases):
    states, _ = phases
    for at in advances(states):
        assert int(states[at].contest.schedule.active) == 1


def test_after_an_advance_the_evader_warms_up_against_a_random_pursuer(phases):
    states, _metrics = phases
    updates = {n: np.diff([int(s.learners[n].updates) for s in states]) for n in ("pursuer", "evader")}
    for at in advances(states):
        # Two iterations of it begin games with a random pursuer; they run on until they end.
        assert [int(states[at + i].contest.schedule.warm_left) for i in range(3)] == [2, 1, 0]
        warm = [int(np.sum(np.asarray(states[at + i].games.opponent) == WARM)) for i in range(5)]
        assert warm[0] == 0 < warm[1]
        assert warm[4] == 0
        assert (updates["evader"][at : at + 2] > 0).all()
        # The pursuer learns from no game in which it did not act.
        for i in range(at, at + 4):
            live = np.asarray(states[i].games.opponent)[:16] == WARM
            assert not (live.any() and updates["pursuer"][i])


def test_warm_games_are_driven_at_random_and_credited_to_nobody(phases):
    states, _ = phases
    run = duels.runner(duels.PHASES)
    at = advances(states)[0]
    warm = eqx.tree_at(lambda s: s.contest.schedule.warm_left, states[at], jnp.int32(9))
    after, _ = run.run(warm, 5)
    assert (np.asarray(after[3].games.opponent) == WARM).all()
    for name in ("pursuer", "evader"):
        before, now = after[3].contest.pools[name], after[5].contest.pools[name]
        same = np.asarray(before.born) == np.asarray(now.born)
        assert (np.asarray(before.games)[same] == np.asarray(now.games)[same]).all()
    # A random pursuer turns at any rate; the learned one is near its mean of no turn at full speed.
    speeds = np.asarray(after[3].games.arena.pursuer.speed_mps)
    assert speeds.min() < 0.4
    assert speeds.max() > 0.6
    assert np.std(np.asarray(after[3].games.arena.pursuer.turn_radps)) > 1.0


def test_with_alternate_schedules_the_level_reaches_the_games_too():
    for program in (duels.MICRO, duels.ALONE):
        run = duels.runner(program)
        states, _ = run.run(run.init(jnp.uint32(0)), 12)
        at = advances(states)
        assert at, "no advance to look at"
        assert np.asarray(states[at[0]].games.start_distance_m).max() <= 5.001
        assert np.asarray(states[at[0] + 3].games.start_distance_m).max() > 5.1
