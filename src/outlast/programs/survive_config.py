"""The configuration of the town's program: a town, a learner, and what it explores and climbs."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from outlast.config import RunSection, Section
from outlast.learners.curiosity import CuriosityConfig
from outlast.learners.dqn import QConfig
from outlast.learners.recurrent_dqn import KERNEL, MemoryConfig
from outlast.learners.replay import ReplayConfig
from outlast.programs.stages import StagesConfig
from outlast.worlds.town import Pack, load_pack

SCRIPTED_LEARNERS = ("random", "wait", "rule")


class LivesConfig(Section):
    """How many towns are lived in at once, and for how long between two lines of the journal."""

    worlds: int = Field(64, ge=1, le=65_536, description="towns lived in side by side, per seed")
    horizon: int = Field(128, ge=1, le=65_536, description="ticks of each town in one iteration")


class ExploreConfig(Section):
    """Epsilon-greedy over what is legal; epsilon falls linearly with the steps."""

    epsilon_start: float = Field(1.0, ge=0.0, le=1.0, description="share of random actions at the start")
    epsilon_end: float = Field(0.02, ge=0.0, le=1.0, description="share of random actions in the end")
    epsilon_steps: int = Field(500_000, ge=1, le=10**12, description="world steps until the end is reached")
    births: float = Field(
        0.0, ge=0.0, le=1.0, description="share of lives that begin with meters anywhere, and are not counted"
    )


class GeneralisationConfig(Section):
    """An event: the town's layout is drawn anew, and survival is measured in the old and the new one."""

    at_steps: int = Field(0, ge=0, le=10**12, description="world steps until the event; 0 for none")
    lives: int = Field(64, ge=1, le=65_536, description="greedy lives measured on each side of the event")

    def model_post_init(self, context: object) -> None:
        """Refuse a setting that would do nothing."""
        if not self.at_steps and self.lives != type(self).model_fields["lives"].default:
            raise ValueError("lives has no effect with at_steps = 0")


class SurviveConfig(Section):
    """Training in the town. `town` is the whole pack; a preset names one and may change parts of it."""

    program: Literal["survive"] = "survive"
    pack: str = Field("L1", min_length=1, max_length=500, description="a shipped pack, or a .toml file")
    town: Pack
    learner: Literal["dqn", "recurrent_dqn", "random", "wait", "rule"] = Field(
        "dqn", description="who lives: a Q-learner without or with memory, or a scripted resident"
    )
    lives: LivesConfig = LivesConfig()
    q: QConfig = QConfig()
    memory: MemoryConfig = MemoryConfig()
    replay: ReplayConfig = ReplayConfig()
    explore: ExploreConfig = ExploreConfig()
    curiosity: CuriosityConfig = CuriosityConfig()
    curriculum: StagesConfig = StagesConfig()
    generalisation: GeneralisationConfig = GeneralisationConfig()
    run: RunSection = RunSection()

    @model_validator(mode="before")
    @classmethod
    def _with_town(cls, document: Any) -> Any:
        """Read the pack into the config, so that a run never needs the file again."""
        if not isinstance(document, Mapping):
            return document
        given, name = document.get("town", {}), document.get("pack", "L1")
        whole = isinstance(given, Mapping) and isinstance(given.get("meters"), list)
        if whole or not isinstance(given, Mapping) or not isinstance(name, str):
            return document
        return {**document, "town": load_pack(name, given).model_dump(mode="json")}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_learner()
        if self.lives.horizon % self.stride:
            raise ValueError(
                f"lives.horizon = {self.lives.horizon} is not a multiple of the {self.stride} ticks between "
                "rounds of updates"
            )
        if self.curriculum.stage > len(self.town.stages):
            raise ValueError(
                f"curriculum.stage = {self.curriculum.stage}: the town has {len(self.town.stages)} stages"
            )
        if self.curriculum.kind == "adversarial" and len(self.town.stages) < 2:
            raise ValueError("curriculum.kind = adversarial has no effect: the town has one stage")
        if self.generalisation.at_steps and self.town.layout.policy == "per_episode":
            raise ValueError(
                'generalisation.at_steps has no effect with town.layout.policy = "per_episode": every life is one'
            )
        return self

    def _check_learner(self) -> None:
        if self.learner != "recurrent_dqn" and self.memory != MemoryConfig():
            raise ValueError(f"memory has no effect with learner = {self.learner}")
        if self.learner in SCRIPTED_LEARNERS:
            for name in ("q", "replay", "explore", "curiosity"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect with learner = {self.learner}, which is scripted")
        else:
            self._check_capacity()
        if self.learner == "dqn" and self.q.glances and self.town.observation.kind != "full":
            raise ValueError(
                f"q.glances = {self.q.glances} needs town.observation.kind = full: it looks at offsets of places"
            )
        if self.learner != "recurrent_dqn":
            return
        for name, instead in (("n_step", "; see memory.trace"), ("gap", ""), ("glances", "")):
            if getattr(self.q, name) != QConfig.model_fields[name].default:
                raise ValueError(f"q.{name} has no effect with learner = recurrent_dqn{instead}")
        if self.replay.prioritised:
            raise ValueError("replay.prioritised needs learner = dqn: sequences are drawn evenly")
        if self.replay.every != ReplayConfig.model_fields["every"].default:
            raise ValueError(
                "replay.every has no effect with learner = recurrent_dqn: a round is one memory.sequence"
            )
        kind = self.town.observation.kind
        if kind in ("partial", "s2_partial"):
            side = 2 * self.town.observation.vision + 1
            if side - (KERNEL - 1) * len(self.memory.channels) < 1:
                raise ValueError(
                    f"memory.channels: {len(self.memory.channels)} layers do not fit a window of {side} x {side}"
                )
        elif self.memory.channels != MemoryConfig().channels:
            raise ValueError(f"memory.channels has no effect with town.observation.kind = {kind}")

    def _check_capacity(self) -> None:
        capacity, whole = self.replay.capacity, self.lives.worlds * self.stride
        if whole > capacity:
            raise ValueError(
                f"replay.capacity = {capacity} does not hold the {whole} transitions of one round"
            )
        # What is drawn must lie in the ring whole, or it would be read around the end.
        whole = self.lives.worlds * self.least_rows
        if whole > capacity:
            raise ValueError(
                f"replay.capacity = {capacity} does not hold the {whole} transitions that one draw may reach over"
            )

    @property
    def least_rows(self) -> int:
        """Count the ticks of every world without which nothing can be drawn."""
        if self.learner == "recurrent_dqn":
            return self.memory.burn_in + self.memory.sequence + 1
        return self.q.n_step + 1

    @property
    def stride(self) -> int:
        """Count the ticks between rounds of updates."""
        return self.memory.sequence if self.learner == "recurrent_dqn" else self.replay.every

    @property
    def learns(self) -> bool:
        """Tell whether the resident is a learner."""
        return self.learner not in SCRIPTED_LEARNERS
