"""Every field of the town's program does something that can be seen, or is refused by name where it would not."""

import functools
import json

import jax
import numpy as np
import pytest
import residents

from outlast.config import BadInput, fields, validate
from outlast.programs.survive_config import SurviveConfig

CURIOUS = {
    "curiosity": {"enabled": True, "hidden": 8, "embedding": 4, "samples": 16, "weight": 1.0, "window": 4}
}
ANNEALED = residents.merged(CURIOUS, {"curiosity": {"variance_below": 1e6, "least_survival": 0.05}})
PRIORITISED = {"replay": {"prioritised": True}}
CLIMBING = {"curriculum": residents.CLIMBING}
MIDDLE = {"curriculum": residents.CLIMBING | {"stage": 3}}
MEMORY = {"recurrent": True}
EVENT = {"generalisation": {"at_steps": residents.STEPS, "lives": 4}}
FALLING = {"q": {"learning_rate_final": 0.5, "learning_rate_decay_steps": 256}}


def q(**changes):
    return {"q": changes}


def replay(**changes):
    return {"replay": changes}


def curiosity(**changes):
    return residents.merged(ANNEALED, {"curiosity": changes})


def climbing(**changes):
    return residents.merged(CLIMBING, {"curriculum": changes})


def memory(**changes):
    return {"recurrent": True} | ({"memory": changes} if changes else {})


OPTIONS = [
    ("town", {}, {"town": {"max_steps": 20}}),
    ("learner", {}, {"learner": "rule", "q": None, "replay": None, "explore": None}),
    ("lives.worlds", {}, {"lives": {"worlds": 4}}),
    ("lives.horizon", {}, {"lives": {"horizon": 8}}),
    ("q.hidden", {}, q(hidden=[4])),
    ("q.glances", {}, q(glances=2)),
    ("q.layer_norm", {}, q(layer_norm=False)),
    ("q.dueling", {}, q(dueling=True)),
    ("q.double", {}, q(double=False)),
    ("q.learning_rate", {}, q(learning_rate=1e-2)),
    ("q.learning_rate_final", FALLING, q(learning_rate_final=0.1, learning_rate_decay_steps=256)),
    ("q.learning_rate_decay_steps", FALLING, q(learning_rate_final=0.5, learning_rate_decay_steps=300)),
    ("q.discount", {}, q(discount=0.9)),
    ("q.n_step", {}, q(n_step=1)),
    ("q.target_every", {}, q(target_every=1)),
    ("q.gap", {}, q(gap=0.5)),
    ("q.loss", q(learning_rate=0.3, loss="squared"), q(learning_rate=0.3, loss="huber")),
    ("q.max_gradient_norm", {}, q(max_gradient_norm=1e-3)),
    ("memory.width", MEMORY, memory(width=8)),
    ("memory.channels", MEMORY, memory(channels=[4])),
    ("memory.sequence", memory(burn_in=0, sequence=4), memory(burn_in=0, sequence=8)),
    ("memory.burn_in", MEMORY, memory(burn_in=8)),
    ("memory.stored_state", MEMORY, memory(stored_state=False)),
    ("memory.trace", MEMORY, memory(trace=0.0)),
    ("replay.capacity", {}, replay(capacity=64)),
    ("replay.batch", {}, replay(batch=8)),
    ("replay.every", {}, replay(every=8)),
    ("replay.updates", {}, replay(updates=2)),
    ("replay.starts", {}, replay(starts=256)),
    ("replay.prioritised", {}, PRIORITISED),
    ("replay.alpha", PRIORITISED, replay(prioritised=True, alpha=1.5)),
    ("replay.beta", PRIORITISED, replay(prioritised=True, beta=1.0)),
    ("replay.beta_steps", PRIORITISED, replay(prioritised=True, beta_steps=100)),
    ("explore.epsilon_start", {}, {"explore": {"epsilon_start": 0.1}}),
    ("explore.epsilon_end", {}, {"explore": {"epsilon_end": 0.9}}),
    ("explore.epsilon_steps", {}, {"explore": {"epsilon_steps": 64}}),
    ("explore.births", {}, {"explore": {"births": 0.5}}),
    ("curiosity.enabled", {}, CURIOUS),
    ("curiosity.weight", ANNEALED, curiosity(weight=2.0)),
    ("curiosity.hidden", ANNEALED, curiosity(hidden=4)),
    ("curiosity.embedding", ANNEALED, curiosity(embedding=8)),
    ("curiosity.learning_rate", ANNEALED, curiosity(learning_rate=1e-2)),
    ("curiosity.samples", ANNEALED, curiosity(samples=4)),
    ("curiosity.anneal", CURIOUS, {"curiosity": CURIOUS["curiosity"] | {"anneal": False, "window": 100}}),
    ("curiosity.window", ANNEALED, curiosity(window=8)),
    ("curiosity.variance_below", ANNEALED, curiosity(variance_below=0.01)),
    ("curiosity.least_survival", ANNEALED, curiosity(least_survival=1.0)),
    ("curiosity.share_kept", ANNEALED, curiosity(share_kept=0.5)),
    ("curriculum.kind", {}, {"curriculum": {"kind": "static"}}),
    ("curriculum.stage", {"curriculum": {"kind": "static"}}, {"curriculum": {"kind": "static", "stage": 2}}),
    ("curriculum.lives", CLIMBING, climbing(lives=2)),
    ("curriculum.least_lives", climbing(advance=0.31), climbing(advance=0.31, least_lives=12)),
    ("curriculum.advance", climbing(advance=0.31), climbing(advance=1.0)),
    ("curriculum.retreat", MIDDLE, residents.merged(MIDDLE, {"curriculum": {"retreat": 0.69}})),
    ("curriculum.entropy", climbing(advance=0.31, entropy=1.0), climbing(advance=0.31, entropy=0.01)),
    ("curriculum.slack", MIDDLE, residents.merged(MIDDLE, {"curriculum": {"slack": 0.0}})),
    ("generalisation.at_steps", {}, EVENT),
    ("generalisation.lives", EVENT, {"generalisation": {"at_steps": residents.STEPS, "lives": 8}}),
]
ELSEWHERE = {
    "program": "names the program",
    "pack": "names the town for a reader; the town itself is a field",
}
"""Fields that change no bit of a run, with what they are for."""


@functools.cache
def seen(changes):
    """Return what a user sees of a short run, as bytes: all measures, all lives, and the policy."""
    changes = json.loads(changes)
    town = changes.pop("town", None)
    make = residents.recurrent if changes.pop("recurrent", False) else residents.tiny
    program = make(**({"town": town} if town else {}), **changes)
    n = 10 if program.config.curriculum.kind == "adversarial" or program.config.curiosity.enabled else 5
    states, metrics = residents.runner(program).run(n)
    leaves = jax.tree.leaves((program.policies(states[-1]), metrics))
    return json.dumps(sorted(metrics[0])), b"".join(np.asarray(leaf).tobytes() for leaf in leaves)


@pytest.mark.slow  # a program to compile for each
@pytest.mark.parametrize(("path", "before", "after"), OPTIONS, ids=[case[0] for case in OPTIONS])
def test_option_is_observable(path, before, after):
    assert seen(json.dumps(before)) != seen(json.dumps(after))


def test_the_comparison_finds_no_difference_where_there_is_none():
    again = residents.runner(residents.tiny()).run(5)
    first = residents.runner(residents.tiny()).run(5)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(first), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_every_field_has_its_test():
    # Fields of a pack are tested with the town, fields of `run` with the run layer.
    own = {path for path, _ in fields(SurviveConfig) if path.split(".")[0] not in ("town", "run")}
    assert {case[0] for case in OPTIONS} - {"town"} == own - set(ELSEWHERE)


SCRIPTED = {"learner": "rule", "q": None, "replay": None, "explore": None}
PER_EPISODE = {"town": {"layout": {"policy": "per_episode"}}}
BY_SIGHT = {"recurrent": True, "town": {"observation": {"kind": "full"}}}
REFUSED = [
    ({"memory": {"width": 8}}, "memory has no effect with learner = dqn"),
    (SCRIPTED | {"q": {"hidden": [8]}}, "q has no effect with learner = rule"),
    (SCRIPTED | {"replay": {"batch": 8}}, "replay has no effect with learner = rule"),
    (SCRIPTED | {"explore": {"epsilon_end": 0.5}}, "explore has no effect with learner = rule"),
    (SCRIPTED | CURIOUS, "curiosity has no effect with learner = rule"),
    ({"lives": {"horizon": 18}}, "lives.horizon = 18 is not a multiple of the 4 ticks"),
    ({"curriculum": {"kind": "static", "stage": 6}}, "curriculum.stage = 6: the town has 5 stages"),
    (
        CLIMBING | {"town": {"stages": [{}]}},
        "curriculum.kind = adversarial has no effect: the town has one stage",
    ),
    (PER_EPISODE | EVENT, "generalisation.at_steps has no effect"),
    ({"generalisation": {"lives": 8}}, "lives has no effect with at_steps = 0"),
    ({"lives": {"worlds": 128}}, "replay.capacity = 256 does not hold the 512 transitions of one round"),
    # What could never be drawn whole would be read around the end of the ring.
    (replay(capacity=64, every=1) | q(n_step=8), "replay.capacity = 64"),
    (memory(burn_in=32) | replay(capacity=256), "replay.capacity = 256"),
    (memory() | q(n_step=2), "q.n_step has no effect with learner = recurrent_dqn"),
    (memory() | q(gap=0.5), "q.gap has no effect with learner = recurrent_dqn"),
    (memory() | q(glances=2), "q.glances has no effect with learner = recurrent_dqn"),
    (memory() | PRIORITISED, "replay.prioritised needs learner = dqn"),
    (memory() | replay(every=8), "replay.every has no effect with learner = recurrent_dqn"),
    (memory(channels=[2, 2, 2]), "3 layers do not fit a window of 5 x 5"),
    (BY_SIGHT, "memory.channels has no effect with town.observation.kind = full"),
    (memory(burn_in=6), "burn_in = 6 is not a multiple of sequence = 4"),
    ({"curiosity": {"weight": 1.0}}, "weight has no effect with enabled = false"),
    (
        {"curiosity": {"enabled": True, "anneal": False, "window": 4}},
        "window has no effect with anneal = false",
    ),
    (q(learning_rate_final=0.5), "learning_rate_final and learning_rate_decay_steps belong together"),
    (q(hidden=[0]), "hidden width 0 is out of range"),
    (replay(beta=0.5), "beta has no effect with prioritised = false"),
    ({"town": {"observation": {"kind": "s2_full"}}} | q(glances=2), "q.glances"),
]


@pytest.mark.parametrize(("changes", "part"), REFUSED, ids=range(len(REFUSED)))
def test_what_would_do_nothing_is_refused_in_one_line(changes, part):
    changes = dict(changes)
    town = changes.pop("town", None)
    make = residents.recurrent if changes.pop("recurrent", False) else residents.tiny
    with pytest.raises(BadInput) as caught:
        make(**({"town": town} if town else {}), **changes)
    line = str(caught.value)
    assert part in line
    assert "\n" not in line


def test_a_pack_is_read_into_the_config_and_may_be_changed():
    config = validate(SurviveConfig, {"pack": "L0.5", "town": {"max_steps": 77}}, source="test")
    assert (config.town.max_steps, len(config.town.deployed_names)) == (77, 4)
    again = validate(SurviveConfig, json.loads(config.model_dump_json()), source="test")
    assert again == config
    with pytest.raises(BadInput, match="unknown pack"):
        validate(SurviveConfig, {"pack": "L9"}, source="test")
