"""Who trains when. Most tests drive the schedule alone, iteration by iteration, with evaluations of their own; the
last ones see it in whole programs.
"""

import functools
import itertools

import duels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.config import BadInput, validate
from outlast.selfplay import schedule as schedules
from outlast.selfplay.config import ScheduleConfig, SelfPlayConfig
from outlast.worlds.arena import Role

PER_ITERATION = 100
LETTER = {(True, False): "P", (False, True): "E", (True, True): "B", (False, False): "-"}


def config(**fields):
    return validate(ScheduleConfig, fields, source="test")


def on(**fields):
    return {"enabled": True, **fields}


def trace(rules, n, *, rates=None, every=1, obstacles=False):
    """Tell who trains in each of n iterations; `rates` are the capture rates of the evaluations."""

    @jax.jit
    def trained(schedule, iteration):
        return [schedules.trains(schedule, iteration, role, rules) for role in Role]

    @jax.jit
    def stepped(schedule, iteration):
        schedule, over = schedules.next_phase(schedule, rules, PER_ITERATION, jnp.bool_(obstacles))
        return schedules.forced(schedule, iteration + 1, rules, PER_ITERATION), over

    @jax.jit
    def evaluated(schedule, rate, iteration):
        return schedules.after_evaluation(schedule, rate, iteration + 1, rules, PER_ITERATION)

    schedule, letters, rates = schedules.first_schedule(rules), "", iter(rates or ())
    for i in map(jnp.int32, range(n)):
        letters += LETTER[tuple(bool(t) for t in trained(schedule, i))]
        schedule, _ = stepped(schedule, i)
        if (int(i) + 1) % every == 0:
            schedule = evaluated(schedule, jnp.float32(next(rates, 0.5)), i)
    return letters


def test_together_trains_both():
    assert trace(config(), 4) == "BBBB"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"micro_phase_steps": 100}, "PEPEPEPE"),
        ({"micro_phase_steps": 101}, "PPEEPPEE"),
        ({"micro_phase_steps": 100, "train_ratio": 3}, "PPPEPPPE"),
        ({"micro_phase_steps": 200, "train_ratio": 2}, "PPPPEEPP"),
        ({"micro_phase_steps": 100, "max_phases": 3}, "PEP-----"),
        ({"micro_phase_steps": 100, "freeze": "pursuer"}, "EEEEEEEE"),
        ({"micro_phase_steps": 100, "freeze": "evader"}, "PPPPPPPP"),
    ],
)
def test_micro_phases_alternate(fields, expected):
    assert trace(config(kind="micro", **fields), 8) == expected


@pytest.mark.parametrize(
    ("fields", "obstacles", "expected"),
    [
        ({"phase_steps": 300}, False, "PPPEEEPPP"),
        ({"phase_steps": 200, "evader_multiplier": 2.0}, True, "PPEEEEPPE"),
        ({"phase_steps": 200, "evader_multiplier": 2.0}, False, "PPEEPPEEP"),
        ({"phase_steps": 200, "max_phases": 2}, False, "PPEE-----"),
    ],
)
def test_long_phases(fields, obstacles, expected):
    assert trace(config(kind="phases", **fields), 9, obstacles=obstacles) == expected


def test_warm_up_has_two_phases_of_each_length_and_then_the_full_one():
    rules = config(kind="phases", phase_steps=400, warm_up=on(lengths=[100, 200, 300]))
    expected = "P" + "E" + "PP" + "EE" + "PPP" + "EEE" + "PPPP" + "EEEE"
    assert trace(rules, len(expected)) == expected


def test_freeze_in_the_schedule_together():
    assert trace(config(freeze="pursuer"), 3) == "EEE"
    assert trace(config(freeze="evader"), 3) == "PPP"


def freeze(**fields):
    return config(alternate_freeze=on(**fields))


def test_alternate_freeze_switches_when_the_training_role_wins_often_enough():
    rates = [0.5, 0.61, 0.5, 0.41, 0.39, 0.5]
    assert trace(freeze(threshold=0.6), 7, rates=rates) == "PPEEEPP"
    assert trace(freeze(threshold=0.6, first="evader"), 4, rates=[0.5, 0.39, 0.7]) == "EEPE"


def test_alternate_freeze_waits_for_evaluations_in_a_row():
    rates = [0.7, 0.5, 0.7, 0.7, 0.5]
    assert trace(freeze(threshold=0.6, consecutive=2), 6, rates=rates) == "PPPPEE"


def test_alternate_freeze_follows_the_schedule_of_thresholds():
    rules = freeze(threshold=0.9, schedule=[(300, 0.7)])
    # 0.8 is not above 0.9 at 100 and 200 steps; from 300 on it is above 0.7.
    assert trace(rules, 5, rates=[0.8, 0.8, 0.8, 0.5]) == "PPPEE"


def test_alternate_freeze_is_forced_by_the_clock():
    never = {"threshold": 1.0}
    assert trace(freeze(**never, force_first_steps=300), 8) == "PPPEEEEE"
    assert trace(freeze(**never, force_steps=200), 8) == "PPEEPPEE"
    # A switch that came before makes the forced first one needless.
    assert trace(freeze(threshold=0.6, force_first_steps=300), 5, rates=[0.7]) == "PEEEE"
    assert trace(freeze(**never, force_steps=200, both_from_steps=500), 8) == "PPEEPBBB"


def test_alternate_freeze_holds_in_micro_phases_until_both_are_released():
    rules = config(
        kind="micro", micro_phase_steps=100, alternate_freeze=on(threshold=1.0, both_from_steps=300)
    )
    assert trace(rules, 8) == "PPPEPEPE"


def test_adaptive_ratio_trains_only_the_loser_for_so_many_phases():
    rules = config(kind="micro", micro_phase_steps=100, adaptive_ratio=on(threshold=0.3, boost_phases=3))
    # After the fourth iteration: capture 0.1, so the pursuer loses by 0.8 and has the next three turns.
    assert trace(rules, 10, rates=[0.1], every=4) == "PEPE" + "PPP" + "EPE"
    assert trace(rules, 10, rates=[0.9], every=4) == "PEPE" + "EEE" + "EPE"
    assert trace(rules, 8, rates=[0.6], every=4) == "PEPEPEPE"


def test_update_ratio_holds_the_winner_back_within_its_bound_and_with_hysteresis():
    rules = config(update_ratio=on(enter=0.5, leave=0.3, bound=3))
    # Gaps after each evaluation (every third iteration): 0.4, 0.6, 0.4, 0.2.
    rates = [0.7, 0.8, 0.7, 0.6]
    assert trace(rules, 15, rates=rates, every=3) == "BBB" + "BBB" + "BEE" + "BEE" + "BBB"
    assert trace(rules, 6, rates=[0.1], every=3) == "BBB" + "BPP"
    assert (
        trace(config(update_ratio=on(enter=0.5, leave=0.3, bound=2)), 8, rates=[0.1])
        == "BPBPBPBP"[:1] + trace(config(update_ratio=on(enter=0.5, leave=0.3, bound=2)), 8, rates=[0.1])[1:]
    )


def test_dampening_lowers_the_rate_near_balance_but_never_below_a_tenth():
    rules = config(dampening=on(threshold=0.4))
    shares = [float(schedules.rate_share(jnp.float32(gap), rules)) for gap in (1.0, 0.4, 0.2, 0.04, 0.0)]
    np.testing.assert_allclose(shares, [1.0, 1.0, 0.5, 0.1, 0.1], rtol=1e-6)
    assert float(schedules.rate_share(jnp.float32(0.0), config())) == 1.0


def test_an_advance_begins_an_evader_phase_at_once_and_leaves_the_order_as_it_was():
    rules = config(kind="phases", phase_steps=300, train_ratio=2)
    schedule = schedules.first_schedule(rules)
    step = jax.jit(lambda s: schedules.next_phase(s, rules, PER_ITERATION, jnp.bool_(False))[0])
    turn = jax.jit(functools.partial(schedules.evader_turn, config=rules))
    letters = ""
    for i in range(14):
        letters += "PE"[int(schedule.active)]
        schedule = step(schedule)
        if i in (0, 2):
            schedule = turn(schedule)
    # The pursuer's first phase is cut after one step. The evader's is not begun again by a second advance.
    assert letters == "P" + "EEE" + "PPPPPP" + "EEE" + "P"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"micro_phase_steps": 5}, "micro_phase_steps has no effect with kind = together"),
        ({"kind": "micro", "phase_steps": 5}, "phase_steps has no effect"),
        ({"train_ratio": 2}, "train_ratio has no effect"),
        ({"max_phases": 2}, "max_phases has no effect"),
        ({"kind": "micro", "warm_up": {"enabled": True}}, "warm_up has no effect"),
        ({"kind": "micro", "update_ratio": {"enabled": True}}, "update_ratio has no effect"),
        ({"adaptive_ratio": {"enabled": True}}, "adaptive_ratio has no effect"),
        ({"kind": "phases", "alternate_freeze": {"enabled": True}}, "alternate_freeze has no effect"),
        ({"freeze": "evader", "update_ratio": {"enabled": True}}, "update_ratio has no effect with freeze"),
        ({"kind": "micro", "freeze": "evader", "train_ratio": 2}, "train_ratio has no effect with freeze"),
        ({"update_ratio": {"enabled": True}, "alternate_freeze": {"enabled": True}}, "both_from_steps"),
        ({"update_ratio": {"enabled": True, "enter": 0.2}}, "leave = 0.3 is above enter = 0.2"),
        ({"dampening": {"threshold": 0.2}}, "threshold has no effect with enabled = false"),
        ({"warm_up": {"enabled": True, "lengths": [0, 1, 1]}, "kind": "phases"}, "lengths"),
        (
            {"alternate_freeze": {"enabled": True, "schedule": [[5, 1.5]]}},
            "alternate_freeze.schedule",
        ),
    ],
)
def test_options_that_would_do_nothing_are_refused(fields, complaint):
    with pytest.raises(BadInput, match=complaint):
        validate(SelfPlayConfig, {"schedule": fields}, source="test")


@pytest.fixture(scope="module")
def micro():
    """Twenty iterations of micro-phases: (states, metrics)."""
    run = duels.runner(duels.MICRO)
    return run.run(run.init(jnp.uint32(1)), 20)


def updates(states, name):
    """Count the updates of each iteration."""
    return np.diff([int(state.learners[name].updates) for state in states])


def test_in_micro_phases_exactly_one_role_learns_and_the_other_keeps_every_byte(micro):
    states, metrics = micro
    counts = np.stack([updates(states, name) for name in ("pursuer", "evader")])
    assert set(map(tuple, counts.T.tolist())) == {(2, 0), (0, 2)}
    # Until the first evaluation (every fourth iteration) strictly by turns.
    assert counts[0, :4].tolist() == [2, 0, 2, 0]
    for i, (before, after) in enumerate(itertools.pairwise(states)):
        for role, name in enumerate(("pursuer", "evader")):
            same = duels.digest(before.learners[name]) == duels.digest(after.learners[name])
            assert same == (counts[role, i] == 0)
            assert (metrics[i][f"{name}/learning_rate"] == 0.0) == (counts[role, i] == 0)


def test_the_loser_of_an_evaluation_gets_the_next_micro_phases(micro):
    states, metrics = micro
    counts, boosts = updates(states, "pursuer"), 0
    for i, measures in enumerate(metrics[:-2]):
        if measures["evaluation/ne_gap"] > 0.3:
            loses = measures["evaluation/capture_rate"] < 0.5
            assert (counts[i + 1 : i + 3] > 0).tolist() == [loses, loses]
            boosts += 1
    assert boosts > 1


def test_snapshots_on_even_micro_phases_are_of_both_roles(micro):
    # The original stored only one role when the interval was even; here the interval is two micro-phases.
    states, _ = micro
    for pool in states[4].contest.pools.values():
        assert pool.born.tolist()[: int(pool.size)] == [0, 2, 4][: int(pool.size)]
        assert int(pool.size) >= 2
    assert {int(pool.size) for pool in states[-1].contest.pools.values()} == {4}


@pytest.fixture(scope="module")
def phases():
    """Thirty iterations of long phases after a cold start of two: (states, metrics)."""
    run = duels.runner(duels.PHASES)
    return run.run(run.init(jnp.uint32(2)), 30)


def test_the_cold_start_trains_the_evader_alone_and_leaves_a_pool_entry_and_a_rolling_copy(phases):
    states, metrics = phases
    assert updates(states, "evader")[:2].tolist() == [2, 2]
    assert updates(states, "pursuer")[:2].tolist() == [0, 0]
    assert duels.digest(states[0].games) == duels.digest(states[2].games)
    assert [m["episodes"] for m in metrics[:2]] == [0, 0]
    for at, (size, filled) in enumerate([(1, 1), (1, 1), (2, 2)]):
        contest = states[at].contest
        assert (int(contest.pools["evader"].size), int(contest.rolling.filled)) == (size, filled)
        assert int(contest.pools["pursuer"].size) == 1
    pool, evader = states[2].contest.pools["evader"], states[2].learners["evader"]
    entry = jax.tree.map(lambda leaf: leaf[1], pool.policies)
    assert duels.digest(entry.actor) == duels.digest(evader.network.actor)
    newest = jax.tree.map(lambda leaf: leaf[0], states[2].contest.rolling.copies)
    assert duels.digest(newest) == duels.digest(states[2].learners)


def test_long_phases_in_the_program(phases):
    states, _ = phases
    assert updates(states, "pursuer")[2:5].tolist() == [2, 2, 2]
    assert updates(states, "evader")[2:5].tolist() == [0, 0, 0]


def test_dampening_is_seen_in_the_learning_rate(phases):
    states, metrics = phases
    seen = set()
    for before, measures in zip(states[2:], metrics[2:], strict=False):
        gap = float(before.contest.balance.gap)
        for name in ("pursuer", "evader"):
            rate = measures[f"{name}/learning_rate"]
            if rate > 0:
                assert rate == pytest.approx(1e-3 * min(1.0, max(0.1, gap / 0.3)), rel=1e-5)
                seen.add(rate < 1e-3)
    assert False in seen
