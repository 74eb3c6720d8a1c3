"""The town as a world: reset, step, observe, legal, on one instance. The order of a tick is the specification:

move, pay for the action, use the place, deplete, modulate, cascade, judge death, age, judge the limits, reward,
advance the clock.
"""

import dataclasses
from functools import cached_property

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from outlast.worlds.town import clock, meters, places, reward
from outlast.worlds.town.observe import observation_fields, observe
from outlast.worlds.town.pack import Pack
from outlast.worlds.town.state import TownLevel, TownState, TownStep
from outlast.worlds.town.tables import (
    DOWN,
    INTERACT,
    LEFT,
    N_ACTIONS,
    RIGHT,
    UP,
    Tables,
    compile_tables,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Town:
    """One resident in the town of a pack.

    Fast under `vmap` with the world axis last (`in_axes=-1, out_axes=-1`) when the caller carries `ended` and
    selects the reset state at the start of the next step, so that the step is not recomputed per field.
    """

    pack: Pack
    version: int = 1
    n_actions: int = N_ACTIONS

    @cached_property
    def tables(self) -> Tables:
        """Compile the pack to arrays, once."""
        return compile_tables(self.pack)

    @property
    def observation_fields(self) -> dict[str, int]:
        """List the fields of the observation and their sizes, in order."""
        return observation_fields(self.pack)

    @property
    def observation_size(self) -> int:
        """Count the entries of an observation."""
        return sum(self.observation_fields.values())

    def layout(self, key: Key[Array, ""]) -> Int[Array, " places"]:
        """Return the cells of the pack's layout: the given ones, or a draw."""
        if self.pack.layout.policy == "fixed":
            return jnp.asarray(self.tables.cells)
        return self.drawn_layout(key)

    def drawn_layout(self, key: Key[Array, ""]) -> Int[Array, " places"]:
        """Draw distinct cells for the deployed places whatever the policy, as a held-out layout."""
        return _drawn(key, jnp.asarray(self.tables.deployed), self.pack.size)

    def level(self, cells: Int[Array, " places"], stage: int | Int[Array, ""] | None = None) -> TownLevel:
        """Build the level of a stage (0 is the first) with given cells; without a stage, full difficulty."""
        row = len(self.pack.stages) if stage is None else stage
        return TownLevel(
            depletion=jnp.asarray(self.tables.stage_depletion)[row],
            active=jnp.asarray(self.tables.stage_active)[row],
            sparse=jnp.asarray(self.tables.stage_sparse)[row],
            max_steps=jnp.int32(self.pack.max_steps),
            lifespan=jnp.int32(self.pack.lifespan),
            cells=cells,
            redraw=jnp.bool_(self.pack.layout.policy == "per_episode"),
        )

    def reset(self, key: Key[Array, ""], level: TownLevel) -> TownState:
        """Begin a life on a random cell; draw the layout too if the level says so."""
        layout_key, spawn_key = jax.random.split(key)
        drawn = _drawn(layout_key, level.cells >= 0, self.pack.size)
        cell = jax.random.randint(spawn_key, (), 0, self.pack.size**2, jnp.int32)
        return TownState(
            x=cell % self.pack.size,
            y=cell // self.pack.size,
            meters=tuple(jnp.float32(start) for start in self.tables.start),
            hour=jnp.int32(0),
            progress=jnp.int32(0),
            age=jnp.int32(0),
            owed=jnp.float32(0),
            level=dataclasses.replace(level, cells=jnp.where(level.redraw, drawn, level.cells)),
        )

    def step(self, state: TownState, action: Int[Array, ""]) -> tuple[TownState, TownStep]:
        """Advance one tick. The state returned is the true successor, also when the life ended."""
        here = places.underfoot(state, self.pack.size, len(self.pack.places))
        gains = [state.level.active[index].astype(jnp.float32) for index in range(len(state.meters))]
        body = self._paid(state, action, gains)
        use = places.use(state, body, here, action == INTERACT, gains, self.tables)
        body = meters.drained(use.meters, state.level.depletion, gains, self.tables)
        x, y = self._moved(state, action)
        stays = (x == state.x) & (y == state.y)
        successor = dataclasses.replace(
            state,
            x=x,
            y=y,
            meters=tuple(body),
            hour=clock.next_hour(state.hour),
            progress=jnp.where(stays, use.progress, 0),
            age=state.age + 1,
        )
        return self._judged(successor, use)

    def _moved(self, state: TownState, action: Int[Array, ""]) -> tuple[Array, Array]:
        right = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
        down = (action == DOWN).astype(jnp.int32) - (action == UP).astype(jnp.int32)
        last = self.pack.size - 1
        return jnp.clip(state.x + right, 0, last), jnp.clip(state.y + down, 0, last)

    def _paid(self, state: TownState, action: Int[Array, ""], gains: meters.Meters) -> meters.Meters:
        taken = [action == index for index in range(N_ACTIONS)]
        paid = list(state.meters)
        for index, column in enumerate(self.tables.action_costs.T):
            if column.any():
                paid[index] = meters.clamped(paid[index] - places.chosen(taken, column) * gains[index])
        return paid

    def _judged(self, state: TownState, use: places.Use) -> tuple[TownState, TownStep]:
        body = list(state.meters)
        level = state.level
        cause = jnp.int32(-1)
        for index, (meter, death) in reversed(list(enumerate(self.tables.deaths))):
            cause = jnp.where(death.holds(body[meter]), index, cause)
        dead = cause >= 0
        cut = ~dead & (state.age >= jnp.minimum(level.max_steps, level.lifespan))
        moment = reward.Moment(body, dead, cut, state.age, use.completed, use.used, state)
        extrinsic = reward.extrinsic_reward(moment, self.pack, self.tables)
        shaping = reward.shaping_reward(moment, self.pack)
        # A sparse level withholds what a dense one would have paid and pays it on pay day or at the end.
        owed = jnp.where(level.sparse, state.owed + extrinsic + shaping, 0.0)
        pays = dead | cut | (state.age % self.pack.reward.sparse_ticks == 0)
        extrinsic = jnp.where(level.sparse, jnp.where(pays, owed, 0.0), extrinsic)
        shaping = jnp.where(level.sparse, 0.0, shaping)
        step = TownStep(
            reward=extrinsic + shaping,
            terminated=dead,
            truncated=cut,
            extrinsic=extrinsic,
            shaping=shaping,
            novelty_factor=reward.novelty_factor(body, self.pack),
            used=use.used,
            refused=use.refused,
            completed=use.completed,
            death_cause=cause,
        )
        return dataclasses.replace(state, owed=jnp.where(pays, 0.0, owed)), step

    def observe(self, state: TownState) -> Float[Array, " observation"]:
        """Return what the resident sees."""
        return observe(state, self.pack, self.tables)

    def legal(self, state: TownState) -> Bool[Array, " actions"]:
        """Return which actions are possible: inside the edges, at an open place; money is not asked for."""
        return jnp.stack(self.legal_flags(state))

    def legal_flags(self, state: TownState) -> list[Bool[Array, ""]]:
        """Return `legal` as scalars, which spares a transposition under `vmap`."""
        last = self.pack.size - 1
        here = places.underfoot(state, self.pack.size, len(self.pack.places))
        interact = places.usable(state, here, self.tables)
        return [state.y > 0, state.y < last, state.x > 0, state.x < last, interact, jnp.ones_like(interact)]


def _drawn(key: Key[Array, ""], deployed: Bool[Array, " places"], size: int) -> Int[Array, " places"]:
    cells = jax.random.permutation(key, jnp.arange(size**2, dtype=jnp.int32))
    rank = jnp.cumsum(deployed) - 1
    return jnp.where(deployed, cells[jnp.minimum(rank, size**2 - 1)], -1)
