"""The curriculum: decisions at life ends, from the last lives of the present stage, each of which counts once."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import residents

from outlast.learners.recent import nothing_recent, pushed
from outlast.programs import stages as curricula
from outlast.programs.stages import Ends, StagesConfig

LONGEST, N_STAGES = 100.0, 5
RULES = StagesConfig(
    kind="adversarial", lives=4, least_lives=6, advance=0.7, retreat=0.3, entropy=0.5, slack=0.05
)
GOOD, BAD = (90.0, 1.0, 0.1), (10.0, 1.0, 0.1)
judge = jax.jit(curricula.judged, static_argnums=(3, 4))
push = jax.jit(pushed)


def at(stage, rules=RULES):
    return dataclasses.replace(curricula.first_stages(rules), stage=jnp.int32(stage))


def ends(*lives, stage=0, ended=True):
    """Return lives of (survival, reward per tick, entropy), each of which may have ended, in eight worlds."""
    rows = np.zeros((8, 3), "f4")
    rows[: len(lives)] = np.reshape(lives, (-1, 3))
    over = np.arange(8) < len(lives) if ended else np.zeros(8, bool)
    return Ends(over, np.full(8, stage, "i4"), *rows.T)


def after(stages, *all_ends, rules=RULES):
    for one in all_ends:
        stages = judge(stages, one, jnp.float32(LONGEST), N_STAGES, rules)
    return stages


def test_good_lives_advance_once_there_are_enough():
    few = after(at(0), ends(*[GOOD] * 5))
    assert (int(few.stage), int(few.survival.count)) == (0, 5)
    enough = after(few, ends(GOOD))
    assert (int(enough.stage), int(enough.advances), int(enough.retreats)) == (1, 1, 0)
    # The new stage is judged by lives of its own.
    assert int(enough.survival.count) == int(enough.reward.count) == int(enough.entropy.count) == 0


def test_bad_lives_retreat_but_never_below_the_first_stage():
    down = after(at(2), ends(*[BAD] * 6, stage=2))
    assert (int(down.stage), int(down.advances), int(down.retreats)) == (1, 0, 1)
    stays = after(at(0), ends(*[BAD] * 6))
    assert (int(stays.stage), int(stays.retreats), int(stays.survival.count)) == (0, 0, 6)


def test_there_is_nothing_above_the_last_stage():
    stays = after(at(4), ends(*[GOOD] * 6, stage=4))
    assert (int(stays.stage), int(stays.advances)) == (4, 0)


def test_a_stage_at_a_time():
    assert int(after(at(0), ends(*[GOOD] * 8)).stage) == 1


def test_only_life_ends_decide():
    ready = after(at(1), ends(*[(50.0, 1.0, 0.1)] * 6, stage=1))
    assert int(ready.stage) == 1
    held = dataclasses.replace(ready, survival=dataclasses.replace(ready.survival, values=jnp.full(4, 90.0)))
    assert int(after(held, ends(GOOD, stage=1, ended=False)).stage) == 1
    assert int(after(held, ends(GOOD, stage=1)).stage) == 2


def test_lives_born_in_another_stage_do_not_count():
    stays = after(at(1), *[ends(*[BAD] * 8, stage=stage) for stage in (0, 2, 3)])
    assert (int(stays.stage), int(stays.survival.count)) == (1, 0)


def test_each_life_counts_once():
    mixed = ends(GOOD, BAD, (50.0, 0.5, 0.3))
    seen = after(at(0), mixed)
    assert int(seen.survival.count) == 3
    assert seen.survival.values.tolist() == [90.0, 10.0, 50.0, 0.0]
    assert int(after(seen, ends(ended=False)).survival.count) == 3


@pytest.mark.parametrize(
    ("life", "stage"),
    [
        ((71.0, 1.0, 0.49), 2),  # above every bar
        ((69.0, 1.0, 0.1), 1),  # not long enough
        ((90.0, 1.0, 0.51), 1),  # long, but by chance
        ((31.0, 1.0, 0.1), 1),
        ((29.0, 1.0, 0.1), 0),
    ],
)
def test_the_bars_are_shares_of_the_longest_life_and_of_the_largest_entropy(life, stage):
    assert int(after(at(1), ends(*[life] * 6, stage=1)).stage) == stage


def test_a_bar_looks_at_the_last_lives_only():
    assert int(after(at(0), ends(*[BAD] * 5), ends(*[GOOD] * 4)).stage) == 1
    assert int(after(at(0), ends(*[GOOD] * 2, *[BAD] * 3), ends(GOOD)).stage) == 0


@pytest.mark.parametrize(("loss", "stage"), [(0.04, 2), (0.06, 0)])
def test_a_loss_of_reward_beyond_the_slack_is_a_decline(loss, stage):
    """Progress compares the last four lives with the four before; long lives do not outweigh a decline."""
    rules = RULES.model_copy(update={"least_lives": 8})
    lives = [(90.0, 1.0, 0.1)] * 4 + [(90.0, 1.0 - loss, 0.1)] * 4
    assert int(after(at(1, rules), ends(*lives, stage=1), rules=rules).stage) == stage
    found = curricula.progress(after(at(1, rules), ends(*lives[:4], stage=1), rules=rules))
    assert float(found) == 0.0


def test_a_window_keeps_the_newest_in_order():
    window, seen = nothing_recent(4), []
    rng = np.random.default_rng(0)
    for _ in range(12):
        values, new = rng.normal(size=6).astype("f4"), rng.random(6) < 0.5
        window, seen = push(window, values, new), [*seen, *values[new]]
        newest = np.array(seen[-4:])
        assert int(window.count) == len(seen)
        # Means of at most four numbers in another order.
        assert float(window.mean) == pytest.approx(newest.mean() if seen else 0.0, abs=1e-6)
        if len(seen) >= 4:
            assert float(window.variance) == pytest.approx(newest.var(ddof=1), rel=1e-5, abs=1e-6)
            halves = [float(half) for half in window.halves()]
            assert halves == pytest.approx([newest[:2].mean(), newest[2:].mean()], abs=1e-6)
        assert bool(window.full) == (len(seen) >= 4)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"lives": 5}, "lives has no effect with kind = none"),
        ({"kind": "static", "entropy": 0.4}, "entropy has no effect with kind = static"),
        ({"stage": 2}, "stage has no effect with kind = none"),
        ({"kind": "adversarial", "retreat": 0.7}, "retreat = 0.7 is not below advance = 0.7"),
        ({"kind": "adversarial", "lives": 200}, "least_lives = 100 is below lives = 200"),
    ],
)
def test_what_would_do_nothing_is_refused(changes, part):
    with pytest.raises(ValueError, match=part):
        StagesConfig(**changes)


# --- through the whole program


def climbed(learner, n, **changes):
    """Let a scripted resident live; return the stage after each iteration, and all metrics."""
    program = residents.scripted(learner, curriculum=residents.CLIMBING | changes)
    _, metrics = residents.runner(program).run(n)
    return [int(m["curriculum/stage"]) for m in metrics], metrics


def test_a_perfect_resident_climbs_from_the_first_stage_to_the_last():
    stages, metrics = climbed("rule", 40)
    assert stages[0] == 1
    assert stages[-1] == 5
    assert all(later - stage in (0, 1) for stage, later in itertools.pairwise(stages))
    assert int(metrics[-1]["curriculum/advances"]) == 4
    assert int(metrics[-1]["curriculum/retreats"]) == 0
    # Lives are recorded with the stage they were born in: never before it was reached.
    for reached, m in zip(stages, metrics, strict=True):
        assert all(stage <= reached for stage in residents.lives_of([m], "stage"))
    assert set(residents.lives_of(metrics, "stage")) == {1, 2, 3, 4, 5}


def test_a_random_resident_does_not_climb_and_falls_back_from_where_it_dies():
    stages, _ = climbed("random", 40)
    assert set(stages) == {1}
    stages, metrics = climbed("random", 40, stage=4, retreat=0.6)
    assert stages[-1] < 4
    assert int(metrics[-1]["curriculum/retreats"]) - int(metrics[-1]["curriculum/advances"]) == 4 - stages[-1]


def test_a_resident_that_only_waits_dies_and_falls_back():
    """Choices without doubt but short lives: the entropy of the choice alone never advances anybody."""
    stages, _ = climbed("wait", 30, stage=4, retreat=0.6)
    assert stages[-1] < 4
