"""The configuration of self-play. Steps are world steps of one seed; intervals are rounded up to iterations.

A section that is switched off must be left alone, and a combination that could have no effect is refused by
name: nothing here is ever silently ignored.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from outlast.config import Section

Steps = Annotated[int, Field(ge=1, le=10**12)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Switched(Section):
    """A mechanism with an on/off switch; while it is off, its other fields must keep their defaults."""

    enabled: bool = Field(False, description="switch the mechanism on")

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if not self.enabled:
            for name, info in type(self).model_fields.items():
                if name != "enabled" and getattr(self, name) != info.default:
                    raise ValueError(f"{name} has no effect with enabled = false")
        return self


class LeagueConfig(Section):
    """The pools of past policies, one per role, and how opponents are drawn from them."""

    capacity: int = Field(
        20, ge=0, le=512, description="past policies kept per role; 0 plays the current only"
    )
    history: float = Field(0.5, ge=0.0, le=0.9, description="share of a learner's games against the pool")
    groups: int = Field(8, ge=1, le=64, description="past opponents played at the same time, per role")
    sampling: Literal["uniform", "hard", "even"] = Field(
        "uniform", description="uniform, or by the learner's win rate w: hard (1-w)^2, even w(1-w)"
    )
    eviction: Literal["reservoir", "fifo"] = Field(
        "reservoir", description="which entry a full pool gives up"
    )
    snapshot_steps: int = Field(
        100_000, ge=1, le=10**12, description="steps between snapshots into the pools"
    )
    scripted: float = Field(0.0, ge=0.0, le=1.0, description="share of pool games against the scripted panel")

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.capacity == 0 and self.history > 0.0 and self.scripted < 1.0:
            raise ValueError("history must be 0 with capacity = 0 and scripted below 1: there is no opponent")
        acting = {
            "sampling": self.draws,
            "eviction": self.capacity > 0,
            "snapshot_steps": self.capacity > 0,
            "groups": self.history > 0,
            "scripted": self.history > 0,
        }
        for name, acts in acting.items():
            if not acts and getattr(self, name) != type(self).model_fields[name].default:
                without = f"capacity = {self.capacity}, history = {self.history}, scripted = {self.scripted}"
                raise ValueError(f"{name} has no effect with {without}")
        return self

    @property
    def draws(self) -> bool:
        """Tell whether games against entries of a pool are played at all."""
        return self.capacity > 0 and self.history > 0 and self.scripted < 1


class UpdateRatioConfig(Switched):
    """Give the losing role more updates, within bounds and with hysteresis."""

    enter: float = Field(0.5, ge=0.0, le=1.0, description="gap above which the loser gets more epochs")
    leave: float = Field(0.3, ge=0.0, le=1.0, description="gap below which both get the same again")
    bound: int = Field(3, ge=2, le=10, description="the winner learns in one of this many iterations")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.leave > self.enter:
            raise ValueError(f"leave = {self.leave} is above enter = {self.enter}")
        return self


class AlternateFreezeConfig(Switched):
    """Train one role until it wins often enough, then the other."""

    first: Literal["pursuer", "evader"] = Field("pursuer", description="which role trains first")
    threshold: float = Field(0.6, ge=0.0, le=1.0, description="own rate above which the roles switch")
    consecutive: int = Field(1, ge=1, le=1000, description="evaluations above the threshold before a switch")
    schedule: tuple[tuple[Steps, Share], ...] = Field(
        (), max_length=32, description="(from step, threshold) pairs that replace the threshold"
    )
    force_first_steps: int = Field(
        0, ge=0, le=10**12, description="switch at this step if nothing has before; 0 never"
    )
    force_steps: int = Field(0, ge=0, le=10**12, description="switch every so many steps; 0 never")
    both_from_steps: int = Field(
        0, ge=0, le=10**12, description="train both for good from this step; 0 never"
    )


class AdaptiveRatioConfig(Switched):
    """Train only the loser for a while after an unbalanced evaluation."""

    threshold: float = Field(0.3, ge=0.0, le=1.0, description="gap that starts a boost")
    boost_phases: int = Field(20, ge=1, le=10_000, description="micro-phases of a boost")


class DampeningConfig(Switched):
    """Lower the learning rate near balance: times max(0.1, gap / threshold)."""

    threshold: float = Field(0.3, ge=0.01, le=1.0, description="gap below which the rate is lowered")


class ColdStartConfig(Switched):
    """Let the evader learn navigation and fleeing before the first game; it leaves a pool entry."""

    steps: int = Field(200_000, ge=1, le=10**12, description="steps of the cold start")
    goals: int = Field(3, ge=1, le=100, description="goals of a navigation episode")


class WarmUpConfig(Switched):
    """Begin with short phases: two of the first length, two of the second, two of the third."""

    lengths: tuple[Steps, Steps, Steps] = Field(
        (100_000, 200_000, 300_000), description="steps of the first phases"
    )


class ScheduleConfig(Section):
    """Who trains when."""

    kind: Literal["together", "micro", "phases"] = Field(
        "together", description="both roles at once, rapid alternation, or long phases"
    )
    micro_phase_steps: int = Field(4096, ge=1, le=10**9, description="length of a micro-phase (kind = micro)")
    phase_steps: int = Field(500_000, ge=1, le=10**12, description="length of a phase (kind = phases)")
    max_phases: int = Field(0, ge=0, le=10**9, description="stop learning after so many phases; 0 never")
    evader_multiplier: float = Field(
        1.0, ge=0.1, le=100.0, description="evader phases with obstacles are longer (kind = phases)"
    )
    train_ratio: int = Field(1, ge=1, le=1000, description="pursuer phases for each evader phase")
    freeze: Literal["none", "pursuer", "evader"] = Field("none", description="a role that never learns")
    cold_start: ColdStartConfig = ColdStartConfig()
    warm_up: WarmUpConfig = WarmUpConfig()
    update_ratio: UpdateRatioConfig = UpdateRatioConfig()
    alternate_freeze: AlternateFreezeConfig = AlternateFreezeConfig()
    adaptive_ratio: AdaptiveRatioConfig = AdaptiveRatioConfig()
    dampening: DampeningConfig = DampeningConfig()

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        defaults = type(self).model_fields
        only = {
            "micro_phase_steps": ("micro",),
            "phase_steps": ("phases",),
            "evader_multiplier": ("phases",),
            "max_phases": ("micro", "phases"),
            "train_ratio": ("micro", "phases"),
        }
        for name, kinds in only.items():
            if self.kind not in kinds and getattr(self, name) != defaults[name].default:
                raise ValueError(
                    f"{name} has no effect with kind = {self.kind} (it acts in {', '.join(kinds)})"
                )
        for name, kinds in (
            ("warm_up", ("phases",)),
            ("update_ratio", ("together",)),
            ("adaptive_ratio", ("micro",)),
            ("alternate_freeze", ("together", "micro")),
        ):
            if getattr(self, name).enabled and self.kind not in kinds:
                raise ValueError(
                    f"{name} has no effect with kind = {self.kind} (it acts in {', '.join(kinds)})"
                )
        if self.freeze != "none":
            clash = [
                n for n in ("update_ratio", "alternate_freeze", "adaptive_ratio") if getattr(self, n).enabled
            ]
            if clash or self.train_ratio != 1:
                raise ValueError(f"{(clash or ['train_ratio'])[0]} has no effect with freeze = {self.freeze}")
        if self.alternate_freeze.enabled and not self.alternate_freeze.both_from_steps:
            clash = [n for n in ("update_ratio", "adaptive_ratio") if getattr(self, n).enabled]
            if clash or self.train_ratio != 1:
                name = (clash or ["train_ratio"])[0]
                raise ValueError(f"{name} has no effect with alternate_freeze unless both_from_steps ends it")
        return self


class BilateralRollbackConfig(Switched):
    """Roll both roles back to a rolling checkpoint when the health of the learning role fails."""

    every_steps: int = Field(50_000, ge=1, le=10**12, description="steps between rolling checkpoints")
    keep: int = Field(
        4, ge=1, le=64, description="rolling checkpoints kept; they exist from the cold start on"
    )
    depth: int = Field(3, ge=1, le=64, description="checkpoints to go back; fewer while there are fewer")
    window: int = Field(200, ge=1, le=100_000, description="episodes of the capture window; it must be full")
    low: float = Field(0.02, ge=0.0, le=1.0, description="capture rate at which play has collapsed")
    high: float = Field(0.98, ge=0.0, le=1.0, description="capture rate at which one side dominates")
    entropy: float = Field(
        -2.0, ge=-100.0, le=100.0, description="policy entropy below which it has collapsed"
    )
    cooldown_steps: int = Field(50_000, ge=0, le=10**12, description="steps without another rollback")
    bilateral: bool = Field(True, description="roll the opponent back too")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.enabled and self.depth > self.keep:
            raise ValueError(f"depth = {self.depth} is above keep = {self.keep}")
        return self


class CollapseConfig(Switched):
    """Restore a role from its best panel score when it keeps losing; bias the pool while it does."""

    threshold: float = Field(0.05, ge=0.0, le=0.5, description="own rate below which an evaluation counts")
    streak: int = Field(3, ge=1, le=1000, description="such evaluations in a row that restore the role")
    hard_opponents: bool = Field(False, description="draw opponents by PFSP (1-w)^2 while the streak lasts")


class EntropyFloorConfig(Switched):
    """Watch the exploration noise and hold it above a floor."""

    log_std: float = Field(-2.0, ge=-10.0, le=2.0, description="lowest log of the noise")


class EwcConfig(Switched):
    """Elastic weight consolidation of the evader: at each advance its policy is anchored."""

    weight: float = Field(1000.0, ge=0.0, le=1e9, description="weight of the penalty")
    samples: int = Field(1024, ge=16, le=1_000_000, description="observations of the Fisher estimate")


class RndConfig(Switched):
    """Random network distillation for the evader: a mean-free bonus for unfamiliar observations."""

    weight: float = Field(0.1, ge=0.0, le=100.0, description="weight of the normalised novelty")
    embedding: int = Field(64, ge=1, le=1024, description="size of the embedding")
    hidden: int = Field(128, ge=1, le=1024, description="width of both networks")
    learning_rate: float = Field(1e-3, ge=1e-7, le=1.0, description="step size of the predictor")
    update_samples: int = Field(1024, ge=1, le=1_000_000, description="samples of each predictor update")


class StabiliserConfig(Section):
    """What keeps a pair from falling apart."""

    rollback: BilateralRollbackConfig = BilateralRollbackConfig()
    collapse: CollapseConfig = CollapseConfig()
    entropy_floor: EntropyFloorConfig = EntropyFloorConfig()
    ewc: EwcConfig = EwcConfig()
    rnd: RndConfig = RndConfig()


class CurriculumConfig(Section):
    """How difficulty moves. Levels reach the training games through the reset of each episode."""

    kind: Literal["none", "discrete", "smooth"] = Field(
        "none", description="no curriculum, six levels, or metres"
    )
    gate: Literal["capture", "dual", "ne_gap"] = Field("capture", description="what an advance asks for")
    capture_rate: float = Field(
        0.7, ge=0.0, le=1.0, description="capture rate to advance (capture and dual gate)"
    )
    min_escape_rate: float = Field(0.0, ge=0.0, le=1.0, description="escape rate to advance (dual gate)")
    ne_gap: float = Field(0.15, ge=0.0, le=1.0, description="gap to stay under (ne_gap gate)")
    consecutive: int = Field(2, ge=1, le=1000, description="evaluations in a row that pass the ne_gap gate")
    min_phases: int = Field(
        1, ge=1, le=10**6, description="phases to stay at a level (evaluations without phases)"
    )
    regress_escape_rate: float = Field(
        0.02, ge=0.0, le=1.0, description="escape rate that regresses; 0 never"
    )
    regress_after: int = Field(3, ge=1, le=1000, description="such evaluations in a row that regress a level")
    start_max_m: float = Field(5.0, ge=0.5, le=250.0, description="first largest start distance (smooth)")
    increment_m: float = Field(0.5, ge=0.01, le=100.0, description="metres added by an advance (smooth)")
    final_max_m: float = Field(15.0, ge=0.5, le=250.0, description="last largest start distance (smooth)")
    min_obstacles: int = Field(0, ge=0, le=32, description="obstacles before obstacles_from_m (smooth)")
    obstacles: int = Field(
        3, ge=0, le=32, description="obstacles from obstacles_from_m on (smooth), or of levels 3 to 6"
    )
    obstacles_from_m: float = Field(
        8.0, ge=0.5, le=250.0, description="distance that brings more obstacles (smooth)"
    )
    mixed_levels: float = Field(0.0, ge=0.0, le=0.9, description="share of worlds kept at the previous level")
    evader_first: bool = Field(False, description="an advance starts an evader phase (kind = phases)")
    warm_start_steps: int = Field(
        0, ge=0, le=10**12, description="steps the evader trains against the random pursuer after an advance"
    )

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        fields, kinds = type(self).model_fields, {"none": set(), "discrete": set(), "smooth": set()}
        everywhere = {
            "gate",
            "min_phases",
            "regress_escape_rate",
            "regress_after",
            "mixed_levels",
            "obstacles",
        }
        everywhere |= {"evader_first", "warm_start_steps"}
        gates = {"capture": {"capture_rate"}, "ne_gap": {"ne_gap", "consecutive"}}
        gates["dual"] = {"capture_rate", "min_escape_rate"}
        acting = kinds[self.kind] | (set() if self.kind == "none" else everywhere | gates[self.gate])
        if self.kind == "smooth":
            acting |= {"start_max_m", "increment_m", "final_max_m", "min_obstacles", "obstacles_from_m"}
        for name in fields:
            if name != "kind" and name not in acting and getattr(self, name) != fields[name].default:
                raise ValueError(f"{name} has no effect with kind = {self.kind} and gate = {self.gate}")
        if self.regress_escape_rate == 0.0 and self.regress_after != fields["regress_after"].default:
            raise ValueError("regress_after has no effect with regress_escape_rate = 0")
        if self.gate == "dual" and self.min_escape_rate == 0.0:
            raise ValueError("gate = dual needs min_escape_rate above 0; without it, it is gate = capture")
        if self.start_max_m > self.final_max_m:
            raise ValueError(f"start_max_m = {self.start_max_m} is above final_max_m = {self.final_max_m}")
        return self


class EvaluationConfig(Section):
    """The games inside the program that schedules, curricula and convergence are decided by."""

    every_steps: int = Field(200_000, ge=1, le=10**12, description="steps between evaluations")
    games: int = Field(500, ge=1, le=100_000, description="head-to-head games, on fixed first states")
    panel_games: int = Field(
        64, ge=0, le=100_000, description="games against each panel opponent; 0 for none"
    )
    sampled: bool = Field(False, description="play sampled actions instead of mean actions")
    eta: float = Field(0.1, ge=0.0, le=1.0, description="largest gap that counts as balance")
    consecutive: int = Field(
        5, ge=1, le=1000, description="balanced evaluations in a row that are convergence"
    )
    panel_margin: float = Field(
        0.1, ge=0.0, le=1.0, description="fall of a panel score from its best that forbids convergence"
    )
    stop_when_converged: bool = Field(False, description="stop learning once converged")


class SelfPlayConfig(Section):
    """Everything about learning from games between two learners."""

    league: LeagueConfig = LeagueConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    stabilisers: StabiliserConfig = StabiliserConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.curriculum.evader_first and self.schedule.kind != "phases":
            raise ValueError("curriculum.evader_first has no effect with schedule.kind other than phases")
        if self.stabilisers.ewc.enabled and self.curriculum.kind == "none":
            raise ValueError(
                "stabilisers.ewc has no effect without a curriculum: the anchor is set at an advance"
            )
        if self.stabilisers.collapse.enabled and self.evaluation.panel_games == 0:
            raise ValueError(
                "stabilisers.collapse needs evaluation.panel_games: it restores the best panel score"
            )
        if self.stabilisers.collapse.hard_opponents and not (
            self.league.draws and self.league.sampling != "hard"
        ):
            raise ValueError(
                "stabilisers.collapse.hard_opponents has no effect with a league that never draws from its pool, "
                "or always draws the hard ones"
            )
        margin = type(self.evaluation).model_fields["panel_margin"].default
        if self.evaluation.panel_games == 0 and self.evaluation.panel_margin != margin:
            raise ValueError("evaluation.panel_margin has no effect with evaluation.panel_games = 0")
        self._check_who_learns()
        return self

    def _check_who_learns(self) -> None:
        schedule, hard = self.schedule, self.stabilisers
        if schedule.freeze == "evader":
            idle = {
                "stabilisers.ewc": hard.ewc.enabled,
                "stabilisers.rnd": hard.rnd.enabled,
                "curriculum.warm_start_steps": self.curriculum.warm_start_steps > 0,
                "curriculum.evader_first": self.curriculum.evader_first,
            }
            for name, is_on in idle.items():
                if is_on:
                    raise ValueError(f"{name} has no effect with schedule.freeze = evader")
        one_sided = schedule.kind != "together" or schedule.freeze != "none"
        one_sided |= schedule.alternate_freeze.enabled or schedule.update_ratio.enabled
        if not hard.rollback.bilateral and not (one_sided or self.curriculum.warm_start_steps):
            raise ValueError("stabilisers.rollback.bilateral = false has no effect: both roles always learn")
