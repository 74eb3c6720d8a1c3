"""The configuration of the arena's program: one role against scripted opponents, or both against each other."""

import dataclasses
from typing import Literal, Self

from pydantic import Field, model_validator

from outlast.config import RunSection, Section
from outlast.learners.ppo import PpoConfig
from outlast.safety.barrier import gamma_of
from outlast.safety.config import SafetyConfig, ShieldConfig
from outlast.selfplay.config import SelfPlayConfig
from outlast.selfplay.curriculum import last_level, stage_table
from outlast.worlds.arena import ArenaConfig, LevelConfig, Role, scripted


class CollectConfig(Section):
    """How many games are played at once, and for how many steps between updates."""

    worlds: int = Field(256, ge=1, le=65_536, description="games played in parallel, per seed")
    horizon: int = Field(64, ge=1, le=8192, description="steps of each game between updates")


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How the worlds are shared out along the world axis: pursuer against the past, both current, evader.

    The current pursuer plays in the first two blocks, the current evader in the last two.
    """

    pursuer: int
    both: int
    evader: int

    @property
    def worlds(self) -> int:
        """Count all worlds."""
        return self.pursuer + self.both + self.evader

    def live(self, role: Role) -> slice:
        """Return the worlds in which the current policy of a role plays."""
        return (
            slice(0, self.pursuer + self.both) if role == Role.PURSUER else slice(self.pursuer, self.worlds)
        )

    def past(self, role: Role) -> slice:
        """Return the worlds in which past or scripted policies of a role play."""
        return (
            slice(self.pursuer + self.both, self.worlds) if role == Role.PURSUER else slice(0, self.pursuer)
        )


class DuelConfig(Section):
    """Training in the arena."""

    program: Literal["duel"] = "duel"
    learner: Literal["pursuer", "evader", "both"] = Field("pursuer", description="which role learns")
    opponents: dict[str, float] = Field(
        {}, description="weights of the scripted opponents, drawn at each episode's start (one role learns)"
    )
    arena: ArenaConfig = ArenaConfig()
    collect: CollectConfig = CollectConfig()
    ppo: PpoConfig = PpoConfig()
    safety: SafetyConfig = SafetyConfig()
    selfplay: SelfPlayConfig = SelfPlayConfig()
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.learner == "both":
            self._check_selfplay()
        else:
            self._check_opponents()
        for role in self.roles:
            worlds = self.blocks.live(role)
            rows = (worlds.stop - worlds.start) * self.collect.horizon
            if rows % self.ppo.minibatches:
                raise ValueError(
                    f"ppo.minibatches = {self.ppo.minibatches} does not divide the {rows} samples of the "
                    f"{role.name.lower()} (its worlds x collect.horizon)"
                )
        for role in Role:
            self._check_shield(role, self.safety.of(role.name.lower()))
        self._check_distribution()
        return self

    def _check_shield(self, role: Role, shield: ShieldConfig) -> None:
        name = f"safety.{role.name.lower()}"
        if not shield.acts:
            return
        gamma = gamma_of(shield.kappa_per_s, dt_s=self.arena.dt_s)
        if gamma > 1:
            raise ValueError(
                f"{name}.kappa_per_s = {shield.kappa_per_s}: gamma = kappa x dt = {gamma:g} is above 1, "
                "which lets a robot overshoot"
            )
        if role == Role.PURSUER and shield.separation_m >= self.arena.level.capture_radius_m:
            raise ValueError(
                f"{name}.separation_m = {shield.separation_m} forbids every capture at "
                f"arena.level.capture_radius_m = {self.arena.level.capture_radius_m}"
            )
        alone = self.roles == (role,)
        if shield.classifier and not alone:
            raise ValueError(
                f"{name}.classifier needs learner = {role.name.lower()}, from whose games it learns"
            )
        if shield.reward.pays and role not in self.roles:
            raise ValueError(f"{name}.reward has no effect with learner = {self.learner}")
        if shield.bounds != "nominal" and not (alone and self.ppo.distribution == "beta"):
            raise ValueError(
                f"{name}.bounds = {shield.bounds} needs ppo.distribution = beta and learner = {role.name.lower()}"
            )

    def _check_distribution(self) -> None:
        kind = self.ppo.distribution
        if kind not in ("beta", "barrier"):
            return
        if self.learner == "both":
            raise ValueError(f"ppo.distribution = {kind} needs one role that learns: pools keep Gaussians")
        shield = self.safety.of(self.learner)
        if self.arena.fixed_speed and (kind == "barrier" or shield.bounds != "nominal"):
            raise ValueError(
                f"ppo.distribution = {kind} steers and brakes: it needs arena.fixed_speed = false"
            )
        if kind == "barrier" and shield.when not in ("training", "always"):
            raise ValueError(
                f"ppo.distribution = barrier needs safety.{self.learner}.when = training or always: its noise is "
                "added after the projection"
            )

    def _check_opponents(self) -> None:
        if self.selfplay != SelfPlayConfig():
            raise ValueError(f"selfplay has no effect with learner = {self.learner}")
        known = scripted.panel(self.roles[0].other)
        if not self.opponents:
            raise ValueError(f"opponents: at least one is needed (allowed: {', '.join(known)})")
        for name, weight in self.opponents.items():
            if name not in known:
                raise ValueError(
                    f"opponents.{name}: no such opponent of a {self.learner} (allowed: {', '.join(known)})"
                )
            if not 0.0 <= weight <= 1e6:
                raise ValueError(f"opponents.{name} = {weight} is out of range (allowed: 0 to 1000000)")
        if not sum(self.opponents.values()) > 0:
            raise ValueError("opponents: at least one weight must be above 0")

    def _check_selfplay(self) -> None:
        if self.opponents:
            raise ValueError("opponents has no effect with learner = both; see selfplay.league.scripted")
        league, curriculum = self.selfplay.league, self.selfplay.curriculum
        if league.history > 0 and self.blocks.pursuer < league.groups:
            raise ValueError(
                f"collect.worlds = {self.collect.worlds} is too few for selfplay.league.groups = {league.groups}"
            )
        if self.selfplay.stabilisers.ewc.enabled and self.ppo.normalise_observations:
            raise ValueError(
                "selfplay.stabilisers.ewc needs ppo.normalise_observations = false: its inputs would drift"
            )
        floor = self.selfplay.stabilisers.entropy_floor
        if floor.enabled and floor.log_std <= self.ppo.log_std_min:
            raise ValueError(
                f"selfplay.stabilisers.entropy_floor has no effect: ppo.log_std_min = {self.ppo.log_std_min} "
                f"is not below its log_std = {floor.log_std}"
            )
        if self.selfplay.schedule.evader_multiplier != 1.0 and self.arena.obstacle_slots == 0:
            raise ValueError(
                "selfplay.schedule.evader_multiplier has no effect with arena.obstacle_slots = 0"
            )
        if curriculum.kind == "none":
            return
        most = max(row[3] for row in stage_table(curriculum, self.arena.level))
        if most > self.arena.obstacle_slots:
            raise ValueError(
                f"selfplay.curriculum asks for {most} obstacles, arena.obstacle_slots = {self.arena.obstacle_slots}"
            )

    @property
    def roles(self) -> tuple[Role, ...]:
        """Return the roles that learn."""
        return tuple(Role) if self.learner == "both" else (Role[self.learner.upper()],)

    @property
    def blocks(self) -> Blocks:
        """Return how the worlds are shared out."""
        worlds = self.collect.worlds
        if self.learner != "both":
            return Blocks(worlds, 0, 0) if self.learner == "pursuer" else Blocks(0, 0, worlds)
        league = self.selfplay.league
        past = int(worlds * league.history / (1 + league.history))
        past -= past % league.groups
        return Blocks(past, worlds - 2 * past, past)

    @property
    def last_level(self) -> LevelConfig:
        """Return the level that the run works towards, at which checkpoints are compared."""
        return last_level(self.selfplay.curriculum, self.arena.level)

    def scripted_shares(self, role: Role) -> dict[str, float]:
        """Return the scripted policies that a role's past worlds may meet, and their shares."""
        if self.learner == "both":
            moving = [name for name in scripted.panel(role) if name not in ("stationary", "random")]
            return dict.fromkeys(moving, 1 / len(moving)) if self.selfplay.league.scripted > 0 else {}
        total = sum(self.opponents.values())
        # In the panel's order, not the document's: equal configs must number their opponents alike.
        weights = {name: self.opponents.get(name, 0.0) for name in scripted.panel(role)}
        return {name: weight / total for name, weight in weights.items() if weight > 0}
