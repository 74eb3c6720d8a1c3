"""Observations: every field by hand, and the sizes that the field list promises."""

import jax
import numpy as np
import pytest

from outlast.worlds.town.tables import INTERACT

from . import towns

CLOSE = 1e-6  # one division of small integers


def fields(world, state):
    """Cut an observation into its named fields."""
    seen, start = np.asarray(world.observe(state)), 0
    result = {}
    for name, size in world.observation_fields.items():
        result[name] = seen[start : start + size]
        start += size
    assert start == len(seen) == world.observation_size
    return result


@pytest.mark.parametrize(
    ("name", "size"), [("L0", 76), ("L0.5", 76), ("L1", 76), ("L2", 59), ("L3", 62), ("L1-fixed", 76)]
)
def test_sizes(name, size):
    assert towns.town(name).observation_size == size


def test_full_sight_names_every_place_and_the_level():
    world = towns.town("L0.5")
    given = towns.level(world, stage=1)
    state = towns.born(world, at=(2, 5), given=given, energy=0.25)
    seen = fields(world, state)
    np.testing.assert_allclose(seen["position"], [2 / 6, 5 / 6], atol=CLOSE)
    np.testing.assert_allclose(seen["meters"], towns.meters(state), atol=0)
    deployed = [name in world.pack.deployed_names for name in world.pack.place_names]
    assert seen["deployed"].astype(bool).tolist() == deployed
    cells = np.asarray(state.level.cells)
    expected = np.concatenate([(cells % 7 - 2) / 6, (cells // 7 - 5) / 6])
    np.testing.assert_allclose(seen["offsets"], np.where([*deployed, *deployed], expected, 0), atol=CLOSE)
    assert seen["depletion"] == 0.5
    assert seen["active"].astype(bool).tolist() == np.asarray(given.active).tolist()
    assert seen["age"] == 0.0


@pytest.mark.parametrize("name", ["L1", "L3"])
def test_the_place_underfoot_is_named(name):
    world = towns.town(name)
    for index, place in enumerate(world.pack.place_names):
        here = fields(world, towns.born(world, at=place))["here"]
        assert here.tolist() == [float(other == index) for other in range(14)]


def test_clock_progress_and_age():
    world = towns.town("L3")
    state = towns.play(world, towns.born(world, at="Bed", hour=5), [INTERACT, INTERACT])[-1][0]
    seen = fields(world, state)
    np.testing.assert_allclose(
        seen["clock"], [np.sin(2 * np.pi * 7 / 24), np.cos(2 * np.pi * 7 / 24)], atol=CLOSE
    )
    np.testing.assert_allclose(seen["progress"], [2 / 5], atol=CLOSE)
    np.testing.assert_allclose(seen["age"], [2 / 1000], atol=CLOSE)
    old = towns.born(world, given=towns.level(world, lifespan=1))
    assert fields(world, towns.play(world, old, [INTERACT] * 3)[-1][0])["age"] == 1.0


def drawn_window(world, state, outside):
    """Draw the window cell by cell."""
    x, y, size, reach = int(state.x), int(state.y), world.pack.size, world.pack.observation.vision
    stood = {divmod(int(cell), size)[::-1] for cell in np.asarray(state.level.cells) if cell >= 0}
    around = range(-reach, reach + 1)
    return [
        [
            outside if not (0 <= x + dx < size and 0 <= y + dy < size) else float((x + dx, y + dy) in stood)
            for dx in around
        ]
        for dy in around
    ]


@pytest.mark.parametrize(
    ("kind", "field", "outside"), [("partial", "window", -1.0), ("s2_partial", "s2_window", 0.0)]
)
@pytest.mark.parametrize("vision", [1, 2, 3])
def test_window(kind, field, outside, vision):
    world = towns.town("L2", observation={"kind": kind, "vision": vision})
    for seed, cell in enumerate([(0, 0), (3, 4), (7, 2), (6, 7)]):
        state = towns.born(world, at=cell, given=towns.level(world, seed=seed))
        expected = np.ravel(drawn_window(world, state, outside))
        np.testing.assert_array_equal(fields(world, state)[field], expected)


def test_original_grid_counts_resident_and_places_without_names():
    world = towns.town("L0", observation={"kind": "s2_full"})
    alone = fields(world, towns.born(world, at=(2, 2), given=towns.level(world, cells=[4, *[-1] * 13])))
    np.testing.assert_array_equal(alone["s2_grid"].reshape(3, 3), [[0, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert alone["s2_here"].tolist() == [0.0] * 14 + [1.0]
    assert alone["s2_clock"].tolist() == [0.0, 1.0]
    on = fields(world, towns.born(world, at=(1, 1), given=towns.level(world, cells=[4, *[-1] * 13])))
    np.testing.assert_array_equal(on["s2_grid"].reshape(3, 3), [[0, 0, 0], [0, 2, 0], [0, 0, 0]])
    assert on["s2_here"].tolist() == [1.0] + [0.0] * 14


def test_original_time_fields():
    world = towns.town("L3", observation={"kind": "s2_partial"})
    state = towns.play(world, towns.born(world, at="Bed", hour=5), [INTERACT])[-1][0]
    seen = fields(world, state)
    np.testing.assert_allclose(seen["s2_clock"], [1.0, 0.0], atol=CLOSE)
    np.testing.assert_allclose(seen["s2_progress"], [0.1], atol=CLOSE)


@pytest.mark.parametrize("name", towns.SHIPPED)
def test_entries_stay_near_one(name):
    world = towns.town(name)
    keys = jax.random.split(jax.random.key(2), 200)
    states = jax.vmap(world.reset, in_axes=(0, None))(keys, towns.level(world))
    seen = np.asarray(jax.vmap(world.observe)(states))
    assert np.abs(seen).max() <= 1.0
