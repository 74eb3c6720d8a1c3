"""Every field of a pack does something: changing it changes what can be seen of lives in the tiny town."""

import functools
import json
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.config import Section
from outlast.worlds.town import Pack, scene
from outlast.worlds.town.tables import INTERACT, LEFT, N_ACTIONS, WAIT

from . import towns

MULTI = {"multi_tick": True}
PARTIAL = {"observation": {"kind": "partial"}}
CASCADE = {"source": "mood", "target": "energy", "strength": 0.05, "threshold": 0.5}
MODULATION = {"source": "mood", "target": "energy", "rate": 0.002, "base": 0.5, "span": 1.0}
CELLS = {"Bed": [0, 0], "Job": [1, 0]}
FIXED = {"layout": {"policy": "fixed", "cells": CELLS}}
MODIFIER = {"meter": "energy", "low": 0.3, "high": 0.7, "factor": 0.5}
SHAPES = {
    "above": {"kind": "above", "amount": 1.0, "meters": ["energy", "mood"], "threshold": 0.5},
    "balance": {"kind": "balance", "amount": 1.0, "meters": ["energy", "mood"], "threshold": 0.5},
    "completion": {"kind": "completion", "amount": 1.0, "place": "Bed"},
    "approach": {"kind": "approach", "amount": 1.0, "place": "Bed"},
}
MILESTONE = {"kind": "milestone", "minor_ticks": 2, "minor": 1.0, "major_ticks": 4, "major": 3.0}
WEIGHTED = {"kind": "weighted", "base": 2.0, "weights": {"mood": 1.0}, "center": 0.5}


def place(name, form, **parts):
    """Change the parts of one form of one place."""
    return {"places": {name: {form: parts}}}


def reward(**parts):
    """Change the reward; the list of meters goes when the kind has no use for it."""
    uses_meters = parts.get("kind", "interoceptive") in ("interoceptive", "minimum", "baseline")
    return {"reward": parts if uses_meters else {"meters": None, **parts}}


def shape(kind, **parts):
    """Give one shaping term with some parts changed."""
    return reward(shaping=[SHAPES[kind] | parts])


OPTIONS = [
    ("size", {}, {"size": 5}),
    ("multi_tick", {}, MULTI),
    ("max_steps", {}, {"max_steps": 20}),
    ("lifespan", {}, {"lifespan": 30}),
    ("cascade_scale", {}, {"cascade_scale": 2.0}),
    ("deployed", {}, {"deployed": ["Bed"]}),
    ("meters.name", {}, {"meters": {"joy": {}}}),
    ("meters.start", {}, {"meters": {"mood": {"start": 0.7}}}),
    ("meters.depletion", {}, {"meters": {"mood": {"depletion": 0.02}}}),
    ("modulations.source", {}, {"modulations": [MODULATION | {"source": "money"}]}),
    ("modulations.target", {}, {"modulations": [MODULATION | {"target": "money"}]}),
    ("modulations.rate", {}, {"modulations": [MODULATION | {"rate": 0.004}]}),
    ("modulations.base", {}, {"modulations": [MODULATION | {"base": 0.0}]}),
    ("modulations.span", {}, {"modulations": [MODULATION | {"span": 0.0}]}),
    ("cascades.source", {}, {"cascades": [CASCADE | {"source": "money"}]}),
    ("cascades.target", {}, {"cascades": [CASCADE | {"target": "money"}]}),
    ("cascades.strength", {}, {"cascades": [CASCADE | {"strength": 0.1}]}),
    ("cascades.threshold", {}, {"cascades": [CASCADE | {"threshold": 0.6}]}),
    ("deaths.meter", {}, {"deaths": [{"meter": "mood", "value": 0.5}]}),
    ("deaths.test", {"deaths": [{"meter": "energy", "value": 0.0}]}, {"deaths": [{"meter": "energy", "test": "<"}]}),
    ("deaths.value", {}, {"deaths": [{"meter": "energy", "value": 0.4}]}),
    ("costs.move", {}, {"costs": {"move": {"mood": 0.01}}}),
    ("costs.wait", {}, {"costs": {"wait": {"energy": 0.01}}}),
    ("costs.interact", {}, {"costs": {"interact": {"energy": 0.01}}}),
    ("places.name", {}, {"places": {"Bath": {"instant": {}}}}),
    ("places.hours", MULTI, MULTI | {"places": {"Bed": {"hours": [21, 32]}}}),
    ("places.instant.cost", {}, place("Bed", "instant", cost={"money": 0.1})),
    ("places.instant.effects", {}, place("Bed", "instant", effects={"mood": 0.1})),
    ("places.multi_tick.ticks", MULTI, MULTI | place("Job", "multi_tick", ticks=4)),
    ("places.multi_tick.cost", MULTI, MULTI | place("Bed", "multi_tick", cost={"money": 0.1})),
    ("places.multi_tick.effects", MULTI, MULTI | place("Job", "multi_tick", effects={"money": 0.1})),
    ("places.multi_tick.completion", MULTI, MULTI | place("Job", "multi_tick", completion={"mood": 0.2})),
    ("layout.policy", {}, {"layout": {"policy": "per_episode"}}),
    ("layout.cells", FIXED, {"layout": {"policy": "fixed", "cells": CELLS | {"Job": [2, 0]}}}),
    ("observation.kind", {}, PARTIAL),
    ("observation.kind", PARTIAL, {"observation": {"kind": "s2_partial"}}),
    ("observation.kind", {}, {"observation": {"kind": "s2_full"}}),
    ("observation.vision", PARTIAL, {"observation": {"kind": "partial", "vision": 1}}),
    ("reward.kind", {}, reward(kind="minimum")),
    ("reward.kind", {}, reward(kind="baseline")),
    ("reward.kind", {}, reward(kind="constant")),
    ("reward.base", {}, reward(base=2.0)),
    ("reward.meters", {}, reward(meters=["energy"])),
    ("reward.meters", reward(kind="baseline"), reward(kind="baseline", meters=["mood"])),
    ("reward.weights", reward(**WEIGHTED), reward(**WEIGHTED | {"weights": {"energy": 1.0}})),
    ("reward.center", reward(**WEIGHTED), reward(**WEIGHTED | {"center": 0.4})),
    ("reward.minor_ticks", reward(**MILESTONE), reward(**MILESTONE | {"minor_ticks": 3})),
    ("reward.minor", reward(**MILESTONE), reward(**MILESTONE | {"minor": 2.0})),
    ("reward.major_ticks", reward(**MILESTONE), reward(**MILESTONE | {"major_ticks": 5})),
    ("reward.major", reward(**MILESTONE), reward(**MILESTONE | {"major": 4.0})),
    ("reward.death_penalty", {}, reward(death_penalty=1.0)),
    ("reward.retirement_bonus", {"lifespan": 20}, {"lifespan": 20} | reward(retirement_bonus=1.0)),
    ("reward.sparse_ticks", {}, reward(sparse_ticks=5)),
    ("reward.modifiers.meter", reward(modifiers=[MODIFIER]), reward(modifiers=[MODIFIER | {"meter": "money"}])),
    ("reward.modifiers.low", reward(modifiers=[MODIFIER]), reward(modifiers=[MODIFIER | {"low": 0.5}])),
    ("reward.modifiers.high", reward(modifiers=[MODIFIER]), reward(modifiers=[MODIFIER | {"high": 0.9}])),
    ("reward.modifiers.factor", reward(modifiers=[MODIFIER]), reward(modifiers=[MODIFIER | {"factor": 0.1}])),
    ("reward.shaping.kind", shape("above"), shape("balance")),
    ("reward.shaping.kind", shape("completion"), shape("approach")),
    ("reward.shaping.amount", shape("above"), shape("above", amount=2.0)),
    ("reward.shaping.meters", shape("above"), shape("above", meters=["energy"])),
    ("reward.shaping.threshold", shape("balance"), shape("balance", threshold=0.1)),
    ("reward.shaping.place", shape("completion"), shape("completion", place="Job")),
    ("stages.depletion", {}, {"stages": [{"depletion": 0.7, "active": ["energy"]}, {"sparse": True}]}),
    ("stages.active", {}, {"stages": [{"depletion": 0.5, "active": ["energy", "mood"]}, {"sparse": True}]}),
    ("stages.sparse", {}, {"stages": [{"depletion": 0.5, "active": ["energy"]}, {}]}),
]  # fmt: skip

STARTS = [("Bed", 0), ("Bed", 21), ("Job", 9), ((3, 3), 0)]
PLANS = [[INTERACT] * 8 + [WAIT] * 8 + [LEFT] * 29, np.random.default_rng(0).integers(0, N_ACTIONS, 45)]


@functools.cache
def seen(changes):
    """Return everything that can be seen of some lives in the tiny town with changes, as bytes."""
    world = towns.tiny(**json.loads(changes))
    levels = [towns.level(world, stage=stage) for stage in (None, 0, 1)]
    stood = {"Job": (0, 0)} if "Job" not in world.pack.deployed_names else {}
    starts = [
        towns.born(world, at=stood.get(at, at), hour=hour, given=each)
        for each in levels
        for at, hour in STARTS
    ]
    lives = [(state, jnp.asarray(plan, jnp.int32)) for state in starts for plan in PLANS]
    states, plans = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lives)

    def look(state, actions):
        def tick(state, action):
            view = world.observe(state), world.legal(state)
            state, step = world.step(state, action)
            return state, (view, step)

        return jax.lax.scan(tick, state, actions)

    last, everything = jax.jit(jax.vmap(look))(states, plans)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((everything, levels))]
    names = scene(world, jax.tree.map(lambda leaf: leaf[0], last))
    return json.dumps(names), b"".join(leaf.tobytes() for leaf in leaves)


@pytest.mark.parametrize(("path", "before", "after"), OPTIONS, ids=[case[0] for case in OPTIONS])
def test_option_is_observable(path, before, after):
    assert seen(json.dumps(before)) != seen(json.dumps(after))


def test_the_comparison_finds_no_difference_where_there_is_none():
    assert seen(json.dumps({})) == seen(json.dumps({"title": "another name"}))


def leaf_paths(model, prefix=""):
    """List the leaf fields of a pack, through lists and optional tables."""
    for name, info in model.model_fields.items():
        inner = [
            each for each in (info.annotation, *typing.get_args(info.annotation)) if isinstance(each, type)
        ]
        sections = [each for each in inner if issubclass(each, Section)]
        if sections:
            yield from leaf_paths(sections[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_field_has_its_test():
    # The title is shown in lists only.
    assert {case[0] for case in OPTIONS} == set(leaf_paths(Pack)) - {"title"}
