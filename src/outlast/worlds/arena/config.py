"""What is fixed for a whole run of the arena (`ArenaConfig`) and what a level may vary (`LevelConfig`).

Numbers of `LevelConfig` become data: worlds of one compiled batch may hold different ones.
"""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from outlast.config import Section


class LevelConfig(Section):
    """One level of difficulty; an episode keeps the level it was born with."""

    width_m: float = Field(10.0, ge=2.0, le=200.0, description="arena width; the origin is its centre")
    height_m: float = Field(10.0, ge=2.0, le=200.0, description="arena height")
    spawn_min_m: float = Field(2.0, ge=0.0, le=250.0, description="smallest distance at the start")
    spawn_max_m: float = Field(10.0, ge=0.1, le=250.0, description="largest distance at the start")
    obstacles_min: int = Field(0, ge=0, le=32, description="fewest obstacles in an episode")
    obstacles_max: int = Field(0, ge=0, le=32, description="most obstacles in an episode")
    pursuer_speed_mps: float = Field(1.0, ge=0.01, le=50.0, description="speed limit of the pursuer")
    evader_speed_mps: float = Field(1.0, ge=0.01, le=50.0, description="speed limit of the evader")
    capture_radius_m: float = Field(0.5, ge=0.01, le=20.0, description="centre distance that ends the chase")
    max_steps: int = Field(600, ge=1, le=100_000, description="steps after which the evader has won")
    prep_steps: int = Field(0, ge=0, le=100_000, description="first steps in which the pursuer may only turn")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.spawn_min_m > self.spawn_max_m:
            raise ValueError(f"spawn_min_m = {self.spawn_min_m} is above spawn_max_m = {self.spawn_max_m}")
        reach = 0.9 * math.hypot(self.width_m, self.height_m)
        if self.spawn_min_m > reach:
            raise ValueError(
                f"spawn_min_m = {self.spawn_min_m} does not fit: at most {reach:.2f} m, 0.9 of the diagonal"
            )
        if self.obstacles_min > self.obstacles_max:
            raise ValueError(
                f"obstacles_min = {self.obstacles_min} is above obstacles_max = {self.obstacles_max}"
            )
        return self


class SensingConfig(Section):
    """Who sees whom. `full` shows everything; `partial` masks the opponent by range, cone or sight."""

    mode: Literal["full", "partial"] = Field("full", description="full or partial sight")
    radius_m: float = Field(0.0, ge=0.0, le=250.0, description="sensing range; 0 is unlimited")
    cone_deg: float = Field(
        0.0, ge=0.0, le=360.0, description="full opening of the view cone; 0 is all round"
    )
    line_of_sight: bool = Field(True, description="obstacles block the view")
    evader_sees_all: bool = Field(False, description="never mask the evader's view")

    @model_validator(mode="after")
    def _no_idle_option(self) -> Self:
        if self.mode == "full":
            for name in ("radius_m", "cone_deg", "line_of_sight", "evader_sees_all"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(
                        f"{name} has no effect with mode = full; set mode = partial or leave it out"
                    )
        elif not (self.line_of_sight or self.radius_m or self.cone_deg):
            raise ValueError("sensing: mode = partial hides nothing; set radius_m, cone_deg or line_of_sight")
        return self


class RewardConfig(Section):
    """Weights of the reward terms; a weight of zero removes the term from the program."""

    capture_bonus: float = Field(1.0, ge=0.0, le=1e4, description="pursuer's reward at capture")
    timeout_penalty: float = Field(-1.0, ge=-1e4, le=0.0, description="pursuer's reward when time runs out")
    distance_scale: float = Field(
        0.0, ge=0.0, le=1e4, description="weight of metres gained over the diagonal"
    )
    prep_shaping: bool = Field(True, description="also pay the distance term while the pursuer may not move")
    potential: float = Field(
        0.0, ge=0.0, le=1e4, description="weight of the policy-invariant distance potential, zero-sum"
    )
    pursuer_visibility: float = Field(
        0.0, ge=0.0, le=1e3, description="pursuer's reward for seeing the evader"
    )
    evader_mode: Literal["zero_sum", "occlusion", "visibility"] = Field(
        "zero_sum", description="how the evader is paid between the ends of an episode"
    )
    hiding: float = Field(
        0.0, ge=0.0, le=1e3, description="weight of the evader's occlusion or visibility mode"
    )
    survival_bonus: float = Field(
        0.0, ge=0.0, le=1e3, description="evader's reward for each step that goes on"
    )
    obstacle_approach: float = Field(
        0.0, ge=0.0, le=1e4, description="evader's reward for nearing an obstacle"
    )
    obstacle_contact: float = Field(0.0, ge=0.0, le=1e3, description="penalty for touching an obstacle")
    wall_contact: float = Field(0.0, ge=0.0, le=1e3, description="penalty for touching a wall")
    search: float = Field(0.0, ge=0.0, le=1e3, description="pursuer's reward for looking at stale ground")
    stale_steps: int = Field(50, ge=1, le=100_000, description="steps after which ground is fully stale")

    @model_validator(mode="after")
    def _no_idle_option(self) -> Self:
        if (self.evader_mode == "zero_sum") != (self.hiding == 0.0):
            raise ValueError("hiding and evader_mode belong together: set both, or neither")
        if not self.prep_shaping and self.distance_scale == 0.0:
            raise ValueError("prep_shaping = false has no effect with distance_scale = 0")
        if self.stale_steps != 50 and self.search == 0.0:
            raise ValueError("stale_steps has no effect with search = 0")
        return self


class ArenaConfig(Section):
    """Everything about the arena that is compiled into the program."""

    dt_s: float = Field(0.05, ge=1e-3, le=1.0, description="time step")
    robot_radius_m: float = Field(0.15, ge=0.01, le=2.0, description="radius of both robots")
    pursuer_turn_radps: float = Field(2.84, ge=0.01, le=50.0, description="turn rate limit of the pursuer")
    evader_turn_radps: float = Field(2.84, ge=0.01, le=50.0, description="turn rate limit of the evader")
    fixed_speed: bool = Field(False, description="both drive at full speed and only steer")
    obstacle_slots: int = Field(0, ge=0, le=32, description="most obstacles any level may ask for")
    obstacle_radius_min_m: float = Field(0.3, ge=0.05, le=20.0, description="smallest obstacle")
    obstacle_radius_max_m: float = Field(1.0, ge=0.05, le=20.0, description="largest obstacle")
    obstacle_margin_m: float = Field(0.5, ge=0.0, le=20.0, description="free space around each obstacle")
    observed_obstacles: int = Field(0, ge=0, le=32, description="nearest obstacles an agent sees")
    observation: Literal["absolute", "egocentric"] = Field(
        "egocentric", description="the originals' layout, or one in the robot's own frame"
    )
    time_to_go: bool = Field(True, description="observe the share of the episode that is left")
    spawn: Literal["distance", "area"] = Field(
        "distance", description="draw the start distance uniformly, or both positions uniformly"
    )
    timeout: Literal["terminates", "truncates"] = Field(
        "terminates", description="whether running out of time is the end of the game, as it should be"
    )
    sensing: SensingConfig = SensingConfig()
    reward: RewardConfig = RewardConfig()
    level: LevelConfig = LevelConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.obstacle_radius_min_m > self.obstacle_radius_max_m:
            raise ValueError("obstacle_radius_min_m is above obstacle_radius_max_m")
        if self.level.obstacles_max > self.obstacle_slots:
            raise ValueError(
                f"level.obstacles_max = {self.level.obstacles_max} needs obstacle_slots of at least as many "
                f"(it is {self.obstacle_slots})"
            )
        if self.observed_obstacles > self.obstacle_slots:
            raise ValueError(
                f"observed_obstacles = {self.observed_obstacles} is above obstacle_slots = {self.obstacle_slots}"
            )
        if self.reward.search > 0 and self.sensing.mode == "full":
            raise ValueError("reward.search has no effect with sensing.mode = full: the evader is never lost")
        needs_sight = self.reward.hiding + self.reward.pursuer_visibility + self.reward.obstacle_approach
        if self.obstacle_slots == 0 and needs_sight + self.reward.obstacle_contact > 0:
            raise ValueError("rewards about obstacles or hiding have no effect with obstacle_slots = 0")
        smallest = min(self.level.width_m, self.level.height_m)
        if smallest <= 4 * self.robot_radius_m:
            raise ValueError(f"the arena ({smallest} m) is too small for two robots")
        room = smallest / 2 - self.obstacle_radius_min_m - self.obstacle_margin_m
        if self.level.obstacles_min > 0 and room <= 0:
            raise ValueError("no obstacle fits: shrink obstacle_radius_min_m or obstacle_margin_m")
        return self
