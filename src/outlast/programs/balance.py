"""The map of balance: one game of self-play per cell of a grid of levels, all trained in one compiled program.

Where the two sides end up level is a property of the game, so it is measured and not argued about.
"""

import dataclasses
from typing import ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from pydantic import Field, ValidationError, model_validator

from outlast.config import RunSection, Section
from outlast.core import Metrics
from outlast.programs.duel import Duel, DuelState
from outlast.programs.duel_config import DuelConfig
from outlast.programs.play import Played
from outlast.worlds.arena import ArenaLevel, LevelConfig, level_of

Varied = Literal[
    "speed_ratio",
    "size_m",
    "spawn_min_m",
    "spawn_max_m",
    "obstacles",
    "capture_radius_m",
    "max_steps",
    "prep_steps",
]
FIELDS = {"size_m": ("width_m", "height_m"), "obstacles": ("obstacles_min", "obstacles_max")}
WHOLE = ("obstacles", "max_steps", "prep_steps")


class AxisConfig(Section):
    """One axis of the grid."""

    field: Varied = Field(
        "speed_ratio", description="what varies: a field of the level, both sides, or a ratio"
    )
    values: tuple[float, ...] = Field(
        (0.9, 1.0, 1.1, 1.2), min_length=1, max_length=16, description="its values, rising"
    )

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if any(b <= a for a, b in zip(self.values[:-1], self.values[1:], strict=True)):
            raise ValueError(f"values must rise: {self.values}")
        return self


class BalanceConfig(Section):
    """A grid of games, each trained like the duel."""

    program: Literal["balance"] = "balance"
    duel: DuelConfig
    x: AxisConfig = AxisConfig()
    y: AxisConfig = AxisConfig(field="size_m", values=(8.0, 10.0, 12.0, 14.0))
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        duel = self.duel
        if duel.learner != "both" or duel.selfplay.curriculum.kind != "none":
            raise ValueError(
                "duel: the map needs learner = both and no curriculum, which would change the game"
            )
        if duel.run != RunSection():
            raise ValueError("duel.run has no effect in a map; set run")
        if self.run.evaluate_every:
            raise ValueError("run.evaluate_every has no effect in a map: its games evaluate inside training")
        if self.x.field == self.y.field:
            raise ValueError(f"x.field and y.field are both {self.x.field}")
        most = max((int(v) for a in (self.x, self.y) if a.field == "obstacles" for v in a.values), default=0)
        if most > duel.arena.obstacle_slots:
            raise ValueError(f"{most} obstacles need duel.arena.obstacle_slots of at least as many")
        self.levels()
        return self

    def levels(self) -> list[LevelConfig]:
        """List the level of every cell, row by row: y is the row, x the column."""
        return [self._level(x, y) for y in self.y.values for x in self.x.values]

    def _level(self, x: float, y: float) -> LevelConfig:
        base = self.duel.arena.level
        found = base.model_dump()
        for axis, value in ((self.x, x), (self.y, y)):
            if axis.field == "speed_ratio":
                found["evader_speed_mps"] = value * base.pursuer_speed_mps
            else:
                number = int(value) if axis.field in WHOLE else value
                if number != value:
                    raise ValueError(f"{axis.field} = {value} is not a whole number")
                found |= dict.fromkeys(FIELDS.get(axis.field, (axis.field,)), number)
        try:
            return LevelConfig.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(f"cell {self.x.field} = {x}, {self.y.field} = {y}: {first['msg']}") from None


@dataclasses.dataclass(frozen=True)
class Balance:
    """The program of one grid. Its state is the stack of the states of all cells."""

    config: BalanceConfig
    size_fields: ClassVar = "duel.collect.worlds, duel.collect.horizon, the grid"

    @property
    def duel(self) -> Duel:
        """Return the game that every cell trains, at its own level."""
        return Duel(self.config.duel)

    @property
    def n_cells(self) -> int:
        """Count the games."""
        return len(self.config.x.values) * len(self.config.y.values)

    @property
    def steps_per_iteration(self) -> int:
        """Count the world steps of one iteration of one seed, over all cells."""
        return self.n_cells * self.duel.steps_per_iteration

    def init(self, seed: Int[Array, ""]) -> DuelState:
        """Return the states before the first iteration; every cell has the same seed."""
        levels = [level_of(level) for level in self.config.levels()]
        stacked: ArenaLevel = jax.tree.map(lambda *leaves: jnp.stack(leaves), *levels)
        return jax.lax.map(lambda level: self.duel.init(seed, level), stacked)

    def iterate(self, states: DuelState) -> tuple[DuelState, Metrics]:
        """Advance every game by one iteration, one after the other."""
        states, found = jax.lax.map(self.duel.iterate, states)
        rates = found["evaluation/capture_rate"]
        metrics = {name: jnp.sum(found[name]) for name in ("episodes", "captures")}
        metrics["balance/nonfinite"] = sum(jnp.sum(v) for k, v in found.items() if k.endswith("/nonfinite"))
        return states, metrics | {f"balance/{cell}": rates[cell] for cell in range(self.n_cells)}

    def play(self, states: DuelState) -> tuple[DuelState, Played, PyTree]:
        """Collect one rollout of every game, one after the other, of which one is held at a time."""
        first = jax.tree.map(lambda leaf: leaf[0], states)
        return self.duel.play(first)

    def score(self, metrics: dict[str, float]) -> float:
        """Rank no checkpoint above another: a map has no best moment."""
        return float("nan")

    def note(self, metrics: dict[str, np.ndarray]) -> str:
        """Say in a few words how training goes."""
        return self.duel.note(metrics)

    def policies(self, states: DuelState) -> PyTree:
        """Return what is needed to play, of every cell."""
        return jax.vmap(self.duel.policies)(states)
