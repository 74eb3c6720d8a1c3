"""The rules of a tick that the golden vectors do not reach: masks, money, hours, progress, limits, layouts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.worlds.town.tables import DOWN, INTERACT, LEFT, RIGHT, UP, WAIT

from . import towns

L0_5, L1, L3 = towns.town("L0.5"), towns.town("L1"), towns.town("L3")


def legal(world, state):
    return np.asarray(world.legal(state))


@pytest.mark.parametrize(
    ("cell", "walls"),
    [
        ((0, 0), {UP, LEFT}),
        ((7, 0), {UP, RIGHT}),
        ((0, 7), {DOWN, LEFT}),
        ((7, 7), {DOWN, RIGHT}),
        ((3, 3), set()),
    ],
)
def test_edges_are_masked_and_clamp(cell, walls):
    state = towns.born(L1, at=cell)
    for action in (UP, DOWN, LEFT, RIGHT):
        assert legal(L1, state)[action] == (action not in walls)
        ((after, _),) = towns.play(L1, state, [action])
        dx, dy = (0, 0) if action in walls else towns.MOVES[action]
        assert (int(after.x), int(after.y)) == (cell[0] + dx, cell[1] + dy)
        # A bump is paid like any move.
        assert towns.meter(L1, after, "energy") == pytest.approx(0.99, abs=1e-6)


def test_interact_needs_a_deployed_place():
    state = towns.born(L0_5)
    stood = {(int(cell) % 7, int(cell) // 7) for cell in np.asarray(state.level.cells) if cell >= 0}
    assert len(stood) == len(L0_5.pack.deployed_names) == 4
    for x in range(7):
        for y in range(7):
            allowed = legal(L0_5, towns.born(L0_5, at=(x, y)))
            assert allowed[INTERACT] == ((x, y) in stood)
            assert allowed[WAIT]


def test_money_is_not_asked_by_the_mask_and_a_refusal_only_costs_the_tick():
    poor = towns.born(L1, at="Hospital", money=0.1, health=0.5)
    assert legal(L1, poor)[INTERACT]
    ((tried, step),) = towns.play(L1, poor, [INTERACT])
    assert L1.pack.place_names[int(step.refused)] == "Hospital"
    assert int(step.used) == -1
    assert not bool(step.completed)
    # Interacting costs nothing in L1, so only base depletion and the modulation are left.
    expected = towns.meters(poor) - L1.tables.depletion
    expected[6] -= 0.001 * (0.5 + 2.5 * 0.002)
    np.testing.assert_allclose(towns.meters(tried), expected, atol=1e-6)


def test_trying_pays_the_price_of_the_action_whatever_comes_of_it():
    used, refused = (
        towns.play(L0_5, towns.born(L0_5, at="Job", money=0.0), [INTERACT])[0],
        towns.play(L0_5, towns.born(L0_5, at="Bed", money=0.0), [INTERACT])[0],
    )
    price = 0.0029 + 0.005
    assert towns.meter(L0_5, refused[0], "energy") == pytest.approx(1 - price, abs=1e-6)
    assert towns.meter(L0_5, used[0], "energy") == pytest.approx(1 - price - 0.15, abs=1e-6)


def test_the_last_coins_are_enough():
    world = towns.town("L0")
    state = towns.born(world, at="Bed")
    seen = towns.play(world, state, [INTERACT] * 6)
    assert [int(step.used) for _, step in seen] == [0, 0, 0, 0, 0, -1]
    # Six float32 subtractions of 0.05 leave a few roundings of 6e-8 at most, and never a debt.
    assert 0.0 <= towns.meter(world, seen[-1][0], "money") < 1e-6


@pytest.mark.parametrize(
    ("place", "hours"),
    [("Job", range(8, 18)), ("Bar", [*range(18, 24), *range(4)]), ("Bed", range(24)), ("Gym", range(6, 22))],
)
def test_opening_hours_in_mask_and_in_use(place, hours):
    for hour in range(24):
        state = towns.born(L3, at=place, hour=hour)
        is_open = hour in hours
        assert legal(L3, state)[INTERACT] == is_open
        ((after, step),) = towns.play(L3, state, [INTERACT])
        assert (int(step.used) >= 0) == is_open
        assert int(after.progress) == int(is_open)
        assert int(step.refused) == -1


def test_hours_are_not_consulted_in_instant_mode():
    assert legal(L1, towns.born(L1, at="Job", hour=3))[INTERACT]


def test_the_clock_wraps_after_a_day():
    state = towns.born(L1, hour=22)
    assert [int(s.hour) for s, _ in towns.play(L1, state, [WAIT] * 4)] == [23, 0, 1, 2]


def test_progress_pauses_and_resumes():
    state = towns.born(L3, at="Shower")
    seen = towns.play(L3, state, [INTERACT, WAIT, INTERACT, WAIT, INTERACT])
    assert [int(s.progress) for s, _ in seen] == [1, 1, 2, 2, 0]
    assert bool(seen[-1][1].completed)


def test_leaving_the_cell_forgets_progress_and_a_bump_does_not():
    corner = towns.level(L3, cells=[0, *range(10, 23)])
    bed = towns.born(L3, at="Bed", given=corner)
    bumped = towns.play(L3, bed, [INTERACT, INTERACT, UP, LEFT, INTERACT])
    assert [int(s.progress) for s, _ in bumped] == [1, 2, 2, 2, 3]
    left = towns.play(L3, bed, [INTERACT, INTERACT, RIGHT, LEFT, INTERACT])
    assert [int(s.progress) for s, _ in left] == [1, 2, 0, 0, 1]


def test_an_unaffordable_tick_keeps_progress_and_early_leavers_keep_the_wage():
    bed = towns.born(L3, at="Bed", money=0.015)
    assert [int(s.progress) for s, _ in towns.play(L3, bed, [INTERACT] * 3)] == [1, 1, 1]
    job = towns.born(L3, at="Job", hour=8, money=0.0)
    three = towns.play(L3, job, [INTERACT] * 3)[-1][0]
    four = towns.play(L3, job, [INTERACT] * 4)[-1][0]
    assert towns.meter(L3, three, "money") == pytest.approx(3 * 0.05625, abs=1e-6)
    assert towns.meter(L3, three, "energy") == pytest.approx(1 - 3 * 0.005, abs=1e-6)
    assert towns.meter(L3, four, "energy") == pytest.approx(1 - 4 * 0.005 - 0.15, abs=1e-6)


def test_step_limit_truncates_and_retirement_truncates():
    for fields in ({"max_steps": 5}, {"lifespan": 5}):
        state = towns.born(L1, given=towns.level(L1, **fields))
        seen = towns.play(L1, state, [WAIT] * 5)
        assert [bool(step.truncated) for _, step in seen] == [False] * 4 + [True]
        assert not any(bool(step.terminated) for _, step in seen)


def test_a_death_on_the_last_tick_is_a_death():
    state = towns.born(L1, given=towns.level(L1, max_steps=1), energy=0.004)
    ((_, step),) = towns.play(L1, state, [WAIT])
    assert bool(step.terminated)
    assert not bool(step.truncated)


def test_held_meters_never_change_and_are_not_asked_for():
    world = towns.town("L1")
    first = towns.level(world, stage=0)
    state = towns.born(world, given=first, at="Hospital", money=0.0, health=0.5)
    seen = towns.play(world, state, [INTERACT, LEFT, WAIT, RIGHT])
    active = np.asarray(first.active)
    assert active.tolist() == [name in ("energy", "hygiene", "health") for name in world.pack.meter_names]
    for after, _ in seen:
        np.testing.assert_array_equal(towns.meters(after)[~active], towns.meters(state)[~active])
    assert world.pack.place_names[int(seen[0][1].used)] == "Hospital"
    assert (towns.meters(seen[-1][0])[active] != towns.meters(state)[active]).all()


def test_stages_are_data_and_the_last_row_is_full_difficulty():
    build = jax.jit(L1.level)
    cells = L1.layout(jax.random.key(0))
    depletions = [float(build(cells, jnp.int32(stage)).depletion) for stage in range(5)]
    np.testing.assert_allclose(depletions, [0.2, 0.5, 0.8, 1.0, 1.0], rtol=1e-6)
    assert [bool(L1.level(cells, stage).sparse) for stage in range(5)] == [False] * 4 + [True]
    full = L1.level(cells)
    assert float(full.depletion) == 1.0
    assert np.asarray(full.active).all()
    assert not bool(full.sparse)


def test_an_episode_keeps_the_level_it_was_born_with():
    given = towns.level(L1, depletion=0.3, max_steps=77)
    after = towns.play(L1, towns.born(L1, given=given), [WAIT] * 3)[-1][0]
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), after.level, given))


@pytest.mark.parametrize("name", towns.SHIPPED)
def test_layouts_are_distinct_cells_of_the_deployed_places(name):
    world = towns.town(name)
    draw = jax.jit(jax.vmap(world.drawn_layout))
    cells = np.asarray(draw(jax.random.split(jax.random.key(5), 200)))
    deployed = world.tables.deployed
    assert (cells[:, ~deployed] == -1).all()
    stood = cells[:, deployed]
    assert ((stood >= 0) & (stood < world.pack.size**2)).all()
    assert all(len(set(row)) == deployed.sum() for row in stood.tolist())
    # At least sixteen places fall on each cell on average, so a cell is missed with odds below 1e-5.
    assert len(np.unique(stood)) == world.pack.size**2


def test_layout_policies():
    keys = jax.random.split(jax.random.key(3), 4)
    fixed = towns.town("L1-fixed")
    assert len({tuple(np.asarray(fixed.layout(key)).tolist()) for key in keys}) == 1
    assert int(fixed.layout(keys[0])[0]) == 1 * 8 + 1
    assert len({tuple(np.asarray(L1.layout(key)).tolist()) for key in keys}) == 4
    # Per run: the level decides, whatever the key of the life. Per episode: each life draws.
    own = L1.level(L1.layout(keys[0]))
    lives = [np.asarray(L1.reset(key, own).level.cells).tolist() for key in keys]
    assert all(cells == np.asarray(own.cells).tolist() for cells in lives)
    drawn = dataclasses.replace(own, redraw=jnp.bool_(True))
    assert len({tuple(np.asarray(L1.reset(key, drawn).level.cells).tolist()) for key in keys}) == 4
    world = towns.town("L1", layout={"policy": "per_episode"})
    assert bool(world.level(own.cells).redraw)


def test_births_cover_the_town_and_start_from_the_pack():
    reset = jax.jit(jax.vmap(L1.reset, in_axes=(0, None)))
    states = reset(jax.random.split(jax.random.key(1), 3000), towns.level(L1))
    cells = np.bincount(np.asarray(states.y * 8 + states.x), minlength=64)
    # 3000 lives on 64 cells: mean 47, standard deviation 7; five of them either side.
    assert cells.min() > 47 - 34
    assert cells.max() < 47 + 34
    assert (np.stack([np.asarray(m) for m in states.meters], 1) == L1.tables.start).all()
