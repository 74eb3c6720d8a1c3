"""A tiny town with residents for the tests of its program: lives of at most forty ticks, five stages, one cure.

Programs are compiled once per configuration, for a short compile time: what they compute is under test.
"""

import dataclasses

import jax
import numpy as np

from outlast.config import canonical_json, validate
from outlast.programs.survive import Survive
from outlast.programs.survive_config import SurviveConfig
from outlast.worlds.town.pack import build_pack

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
LIMIT = 40
TOWN = {
    "size": 3,
    "max_steps": LIMIT,
    "lifespan": 100,
    # A resident that never sleeps dies after some fifteen ticks at full difficulty; one that does never dies.
    "meters": {"energy": {"depletion": 0.05}, "mood": {"depletion": 0.01}, "money": {"start": 0.4}},
    "deaths": [{"meter": "energy"}],
    "costs": {"move": {"energy": 0.02}},
    "places": {
        "Bed": {"instant": {"cost": {"money": 0.1}, "effects": {"energy": 0.9}}},
        "Job": {"instant": {"effects": {"money": 0.2, "energy": -0.01}}},
    },
    "reward": {"meters": ["energy"], "sparse_ticks": 4},
    "stages": [
        {"depletion": 0.2, "active": ["energy"]},
        {"depletion": 0.5, "active": ["energy", "mood"]},
        {"depletion": 0.8},
        {"depletion": 1.0},
        {"depletion": 1.0, "sparse": True},
    ],
}
TINY = {
    "lives": {"worlds": 8, "horizon": 16},
    "q": {"hidden": [8], "n_step": 2, "target_every": 3},
    "replay": {"capacity": 256, "batch": 16, "every": 4, "updates": 1, "starts": 32},
    "explore": {"epsilon_steps": 512},
}
STEPS = 8 * 16
"""World steps of one iteration of `tiny`."""
CLIMBING = {"kind": "adversarial", "lives": 4, "least_lives": 4, "entropy": 0.9, "slack": 10.0}


def merged(document, changes):
    """Return a document with another laid over it; None takes a key away."""
    both = dict(document)
    for name, value in changes.items():
        inside = isinstance(value, dict) and isinstance(both.get(name), dict)
        both[name] = merged(both[name], value) if inside else value
    return {name: value for name, value in both.items() if value is not None}


def tiny(town=None, base=TINY, **changes):
    """Return the program of the tiny town with changes."""
    pack = build_pack(merged(TOWN, town or {}), source="test").model_dump(mode="json")
    return Survive(validate(SurviveConfig, merged(base, changes) | {"town": pack}, source="test"))


def scripted(learner, town=None, **changes):
    """Return the program of a resident that does not learn."""
    return tiny(town, **{"learner": learner, "q": None, "replay": None, "explore": None, **changes})


def recurrent(**changes):
    """Return the program of a resident with memory, who sees a window and must wait for places to open."""
    places = {
        name: {"hours": [4, 20], "multi_tick": {"ticks": 2, "effects": effects}}
        for name, effects in {"Bed": {"energy": 0.5}, "Job": {"money": 0.1}}.items()
    }
    town = {"multi_tick": True, "observation": {"kind": "partial"}, "places": places}
    small = {
        "learner": "recurrent_dqn",
        "q": {"n_step": None},
        "replay": {"every": None},
        "memory": {"width": 4, "channels": [2], "sequence": 4, "burn_in": 4},
    }
    return tiny(merged(town, changes.pop("town", {})), merged(TINY, small), **changes)


@dataclasses.dataclass(frozen=True)
class Runner:
    """A compiled program."""

    program: Survive
    init: object
    iterate: object

    def run(self, n, *, seed=0, state=None):
        """Iterate n times; return all states, the first among them, and the metrics of each iteration."""
        states, metrics = [self.init(seed) if state is None else state], []
        for _ in range(n):
            state, measures = self.iterate(states[-1])
            states.append(state)
            metrics.append({name: np.asarray(value) for name, value in measures.items()})
        return states, metrics


_RUNNERS = {}


def runner(program):
    """Compile a program once."""
    key = canonical_json(program.config)
    if key not in _RUNNERS:
        init = jax.jit(program.init, compiler_options=FAST)
        _RUNNERS[key] = Runner(program, init, jax.jit(program.iterate, compiler_options=FAST))
    return _RUNNERS[key]


def lives_of(metrics, name):
    """Return one column of the table of lives, of the lives that ended, in order."""
    return np.concatenate([m[f"lives/{name}"][m["lives/ended"]] for m in metrics])
