"""Shields, safe bounds and BarrierNets inside the program: what is recorded, what is learned from, what is refused."""

import functools

import duels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.config import BadInput, validate
from outlast.learners import policies
from outlast.programs.duel import Duel
from outlast.programs.duel_config import DuelConfig
from outlast.safety.shield import Tier
from outlast.selfplay import match
from outlast.worlds.arena import level_of

TINY = {
    "learner": "pursuer",
    "opponents": {"flee_away": 1.0, "random": 1.0},
    "arena": {
        "obstacle_slots": 1,
        "level": {"max_steps": 24, "spawn_min_m": 0.3, "spawn_max_m": 3.0, "obstacles_max": 1}
        | {"width_m": 4.0, "height_m": 4.0},
    },
    "collect": {"worlds": 24, "horizon": 8},
    "ppo": {"network": {"hidden": [8]}, "epochs": 1, "minibatches": 2},
}
SHIELD = {"when": "always"}
BOUNDS = {"ppo": {"distribution": "beta"}, "safety": {"pursuer": SHIELD | {"bounds": "exact"}}}
BARRIER = {"ppo": {"distribution": "barrier"}, "safety": {"pursuer": SHIELD}}


def config_of(*changes):
    document = functools.reduce(duels.merged, changes, TINY)
    if document["learner"] == "both":
        document["opponents"] = {}
    return validate(DuelConfig, document, source="test")


def shield(**fields):
    return {"safety": {"pursuer": SHIELD | fields}}


@functools.cache
def rolled(**fields):
    """Play one rollout of the tiny duel with the pursuer's shield so set."""
    program = Duel(config_of({"safety": {"pursuer": fields}} if fields else {}))
    state = duels.runner(program).init(jnp.uint32(0))
    play = jax.jit(program.play, compiler_options=duels.FAST)
    return program, state, play(state)[1]


def test_chosen_and_applied_are_both_kept_and_the_world_obeys_the_applied_one():
    program, _, played = rolled(when="always", kappa_per_s=0.5)
    done = played.shields["pursuer"]
    chosen = np.asarray(policies.bounded(played.sides["pursuer"].raw, program.config.ppo))
    np.testing.assert_allclose((chosen[:, 0] + 1) / 2, done.chosen[:, 0], atol=1e-6)
    np.testing.assert_allclose(chosen[:, 1] * 2.84, done.chosen[:, 1], atol=1e-6)
    changed = np.asarray(done.tier) != Tier.FREE
    assert changed.any() and not changed.all()
    assert (np.asarray(done.applied != done.chosen).any(axis=1) == changed).mean() > 0.99
    assert not np.asarray(played.contacts.pursuer_wall | played.contacts.pursuer_obstacle).any()
    _, _, bare = rolled()
    assert bare.shields == {} and bare.contacts is None


def test_the_ratio_is_that_of_the_chosen_action():
    program, state, played = rolled(when="always", kappa_per_s=0.5)
    last = jnp.zeros(program.config.collect.worlds)
    batch = program.batch(played, "pursuer", last, 0.0)
    np.testing.assert_array_equal(
        batch.actions, np.moveaxis(np.asarray(played.sides["pursuer"].raw), 1, 0).reshape(2, -1)
    )
    network = state.learners["pursuer"].network
    mean, _ = network(batch.observations)
    now, _ = policies.judged(network, mean, batch.actions, None, program.config.ppo)
    np.testing.assert_allclose(now, batch.log_probabilities, atol=1e-5)


def test_metrics_say_what_the_shield_did():
    _, _, played = rolled(when="always", kappa_per_s=0.5)
    from outlast.programs.duel import shield_metrics

    metrics = {name: float(value) for name, value in shield_metrics(played).items()}
    done = played.shields["pursuer"]
    names = [tier.name.lower() for tier in Tier if tier != Tier.FREE]
    n = done.tier.size
    counted = sum(metrics[f"shield/pursuer/{name}"] for name in names)
    assert counted == pytest.approx(metrics["shield/pursuer/intervention_rate"] * n)
    assert metrics["shield/pursuer/speed_change_mps"] > 0 and metrics["shield/pursuer/turn_change_radps"] > 0
    assert metrics["shield/pursuer/wall_contacts"] == metrics["shield/pursuer/obstacle_contacts"] == 0
    assert not [name for name in metrics if "evader" in name]


@pytest.mark.parametrize("when", ["never", "training", "evaluation", "always"])
def test_the_shield_acts_where_it_is_asked_to(when):
    _, _, played = rolled(**({} if when == "never" else {"when": when}))
    assert bool(played.shields) == (when in ("training", "always"))


@functools.cache
def one_game(when):
    """Drive a pursuer straight into a wall: a match that knows the shield, and one that is told of none."""
    program = Duel(config_of({} if when == "never" else {"safety": {"pursuer": {"when": when}}}))
    world = program.world
    first = match.starts(world, level_of(program.config.last_level), 8)

    def straight(arena, key):
        return jnp.ones(8), jnp.zeros(8)

    def still(arena, key):
        return jnp.zeros(8), jnp.zeros(8)

    games = jax.jit(
        lambda: match.play(
            world, first, straight, still, jax.random.key(0), program.config.safety, watched=True
        ),
        compiler_options=duels.FAST,
    )()
    return jax.tree.map(np.asarray, games)


@pytest.mark.parametrize("when", ["never", "training", "evaluation"])
def test_a_match_is_played_behind_the_shield_that_acts_in_evaluation(when):
    games = one_game(when)
    guard = games.guards["pursuer"]
    touched = games.pursuer_wall_steps + games.pursuer_obstacle_steps
    if when == "evaluation":
        assert touched.sum() == 0 and guard.interventions.sum() > 0
        assert guard.speed_change_mps.sum() > 0 and (guard.least_clearance_m > 0).all()
    else:
        assert touched.sum() > 0 and guard.interventions.sum() == 0
        assert (guard.least_clearance_m[touched > 0] < 1e-3).all()


REFUSED = [
    ({"safety": {"pursuer": {"kappa_per_s": 4.0}}}, "kappa_per_s has no effect with when = never"),
    ({"safety": {"pursuer": {"hard_check": False}}}, "hard_check has no effect"),
    (shield(other_speed_share=0.5), "other_speed_share has no effect with separation_m = 0"),
    (shield(kappa_per_s=30.0), "gamma = kappa x dt = 1.5 is above 1"),
    (shield(separation_m=0.5), "forbids every capture"),
    (shield(bounds="exact"), "needs ppo.distribution = beta"),
    (shield(reward={"margin_full_m": 2.0}), "margin_full_m has no effect with margin = 0"),
    (shield(reward={"intervention_scale": 2.0}), "intervention_scale has no effect"),
    (
        {"safety": {"pursuer": {"when": "evaluation", "classifier": True}}},
        "classifier needs the shield in training",
    ),
    (
        {"safety": {"pursuer": {"when": "evaluation", "reward": {"margin": 1.0}}}},
        "reward needs the shield in training",
    ),
    ({"safety": {"evader": SHIELD | {"reward": {"margin": 1.0}}}}, "safety.evader.reward has no effect"),
    (
        {"safety": {"evader": SHIELD | {"classifier": True}}},
        "safety.evader.classifier needs learner = evader",
    ),
    ({"ppo": {"distribution": "barrier"}}, "needs safety.pursuer.when = training or always"),
    ({**BARRIER, "arena": {"fixed_speed": True}}, "fixed_speed = false"),
    ({"ppo": {"distribution": "beta", "log_std_min": -1.0}}, "log_std_min has no effect"),
    ({"ppo": {"barrier": {"turn_noise": 0.1}}}, "barrier has no effect with distribution = clipped"),
    (
        {"learner": "both", "opponents": {}, "ppo": {"distribution": "beta"}},
        "needs one role that learns",
    ),
]


@pytest.mark.parametrize(("changes", "part"), REFUSED)
def test_what_would_do_nothing_is_refused_by_name(changes, part):
    document = duels.merged(TINY, changes) | {k: v for k, v in changes.items() if k == "opponents"}
    with pytest.raises(BadInput) as caught:
        validate(DuelConfig, document, source="test")
    assert part in str(caught.value)
