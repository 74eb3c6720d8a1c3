"""Tiny duels for the tests of self-play. Programs are compiled once per configuration, for a short compile time:
what they compute is under test, not how fast.
"""

import dataclasses
import functools
import hashlib

import jax
import jax.numpy as jnp

from outlast.config import canonical_json, validate
from outlast.learners import ppo
from outlast.programs.duel import Duel
from outlast.programs.duel_config import DuelConfig

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
STEPS = 24 * 8
"""World steps of one iteration of `tiny`."""

TINY = {
    "learner": "both",
    # Robots start between 0.3 and 3 m apart and are captured at 0.5 m: any pair captures some games, never all.
    "arena": {"level": {"max_steps": 12, "spawn_min_m": 0.3, "spawn_max_m": 3.0}},
    "collect": {"worlds": 24, "horizon": 8},
    "ppo": {"network": {"hidden": [8]}, "epochs": 1, "minibatches": 2},
    "selfplay": {
        "league": {"capacity": 4, "groups": 2, "snapshot_steps": STEPS},
        "evaluation": {"every_steps": 4 * STEPS, "games": 16, "panel_games": 0},
    },
}


def merged(document, changes):
    """Return a document with another laid over it."""
    both = dict(document)
    for name, value in changes.items():
        both[name] = merged(both.get(name, {}), value) if isinstance(value, dict) else value
    return both


def tiny(**changes):
    """Return the tiny duel with changes to its document."""
    return Duel(validate(DuelConfig, merged(TINY, changes), source="test"))


def selfplay(*, capture_radius_m=0.5, **changes):
    """Return the tiny duel with changes to its self-play."""
    return tiny(selfplay=changes, arena={"level": {"capture_radius_m": capture_radius_m}})


@dataclasses.dataclass(frozen=True)
class Runner:
    """A compiled program."""

    program: Duel
    init: object
    iterate: object

    def run(self, state, n):
        """Iterate n times; return all states after the first and the metrics of each iteration."""
        states, metrics = [state], []
        for _ in range(n):
            state, measures = self.iterate(state)
            states.append(state)
            metrics.append({name: float(value) for name, value in measures.items()})
        return states, metrics


_RUNNERS = {}


def runner(program):
    """Compile a program once."""
    key = canonical_json(program.config)
    if key not in _RUNNERS:
        init = jax.jit(program.init, compiler_options=FAST)
        _RUNNERS[key] = Runner(program, init, jax.jit(program.iterate, compiler_options=FAST))
    return _RUNNERS[key]


def digest(tree):
    """Hash the bytes of a tree."""
    parts = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        parts.update(jax.device_get(leaf).tobytes())
    return parts.hexdigest()


@functools.cache
def learner(number, *, hidden=(4,), n_observations=3, n_actions=1):
    """Return an untrained learner that differs from those of other numbers, in what it does and in its count."""
    config = ppo.PpoConfig(network=ppo.NetworkConfig(hidden=hidden))
    new = ppo.new_learner(jax.random.key(number), n_observations, n_actions, config)
    return dataclasses.replace(new, updates=jnp.int32(number))


NO_POOL = {"capacity": 0, "history": 0.0, "groups": 8, "snapshot_steps": 100_000}
NOVELTY = {"enabled": True, "hidden": 8, "embedding": 4, "update_samples": 64}
EVALUATION = {"every_steps": 4 * STEPS, "games": 16, "panel_games": 4}
LEVELS = {"capture_rate": 0.0, "regress_escape_rate": 0.0, "obstacles": 0}
"""Any capture advances, nothing regresses. The discrete levels begin at 2 m, so they need a wide capture radius."""

ALONE = selfplay(
    capture_radius_m=2.5,
    league=NO_POOL,
    schedule={"freeze": "pursuer"},
    evaluation=EVALUATION,
    curriculum={"kind": "discrete", **LEVELS},
    stabilisers={
        "rollback": {"enabled": True, "every_steps": 2 * STEPS, "window": 1000, "bilateral": False},
        "collapse": {"enabled": True},
        "entropy_floor": {"enabled": True, "log_std": -0.5},
        "ewc": {"enabled": True, "samples": 16},
        "rnd": NOVELTY,
    },
)
"""Both play the current only, and all stabilisers are on in the schedule `together`."""

MICRO = selfplay(
    capture_radius_m=2.5,
    league={"scripted": 0.25, "snapshot_steps": 2 * STEPS},
    schedule={
        "kind": "micro",
        "micro_phase_steps": STEPS,
        "adaptive_ratio": {"enabled": True, "boost_phases": 2},
    },
    evaluation=EVALUATION | {"games": 15},
    curriculum={"kind": "discrete", **LEVELS},
    stabilisers={
        "rollback": {"enabled": True, "every_steps": 2 * STEPS, "window": 1000},
        "entropy_floor": {"enabled": True},
        "ewc": {"enabled": True, "samples": 16},
        "rnd": NOVELTY,
    },
)
"""Rapid alternation with scripted opponents; snapshots fall on every second micro-phase. Games are odd: no draw."""

PHASES = selfplay(
    schedule={
        "kind": "phases",
        "phase_steps": 3 * STEPS,
        "cold_start": {"enabled": True, "steps": 2 * STEPS, "goals": 2},
        "dampening": {"enabled": True},
    },
    evaluation=EVALUATION,
    curriculum={
        "kind": "smooth",
        "start_max_m": 1.0,
        "final_max_m": 8.0,
        "increment_m": 4.0,
        "mixed_levels": 0.25,
        "evader_first": True,
        "warm_start_steps": 2 * STEPS,
        **LEVELS,
    },
    stabilisers={
        "rollback": {"enabled": True, "every_steps": 2 * STEPS, "window": 1000, "depth": 2},
        "collapse": {"enabled": True, "streak": 2},
        "entropy_floor": {"enabled": True},
        "ewc": {"enabled": True, "samples": 16},
        "rnd": NOVELTY,
    },
)
"""Long phases after a cold start, with every stabiliser."""
