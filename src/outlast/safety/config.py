"""The configuration of safety, per role: the shield that its robot carries, the bounds of a Beta policy, the reward.

A role's shield filters every command of that role's robot, whoever gives it: learner, past policy or script.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from outlast.config import Section

Use = Literal["training", "evaluation"]


class SafetyReward(Section):
    """What one role is paid for safety, beside the game. It is not passed on to the opponent."""

    margin: float = Field(0.0, ge=0.0, le=1e3, description="reward for clearance, full from margin_full_m on")
    margin_full_m: float = Field(
        1.0, ge=0.01, le=50.0, description="clearance that earns the full margin reward"
    )
    violation: float = Field(
        0.0, ge=0.0, le=1e3, description="penalty per m/s or m^2/s that the chosen command misses a row by"
    )
    intervention: float = Field(
        0.0, ge=0.0, le=1e3, description="penalty for being corrected: w (1 - exp(-|change|^2 / scale))"
    )
    intervention_scale: float = Field(
        0.1, ge=1e-3, le=10.0, description="scale of a correction, squared, in units of the action"
    )

    @property
    def pays(self) -> bool:
        """Tell whether any term has a weight."""
        return self.margin > 0 or self.violation > 0 or self.intervention > 0

    @model_validator(mode="after")
    def _no_idle_option(self) -> Self:
        fields = type(self).model_fields
        for name, weight in (("margin_full_m", "margin"), ("intervention_scale", "intervention")):
            if getattr(self, weight) == 0 and getattr(self, name) != fields[name].default:
                raise ValueError(f"{name} has no effect with {weight} = 0")
        return self


class ShieldConfig(Section):
    """The filter of one role's commands: barriers with one rate, an exact projection, and what comes after it."""

    when: Literal["never", "training", "evaluation", "always"] = Field(
        "never", description="where the shield acts; evaluation is also deployment"
    )
    bounds: Literal["nominal", "analytic", "exact"] = Field(
        "nominal", description="support of a Beta policy: all commands, or a box around the safe ones"
    )
    kappa_per_s: float = Field(
        10.0, ge=0.01, le=1000.0, description="rate of the barriers, dh/dt >= -kappa h; gamma = kappa x dt"
    )
    lookahead_m: float = Field(
        0.1, ge=0.01, le=2.0, description="how far ahead of the axle the point is kept"
    )
    margin_m: float = Field(0.02, ge=0.0, le=5.0, description="clearance beyond the robot's radius")
    speed_weight: float = Field(150.0, ge=1e-3, le=1e6, description="price of a change of speed, squared")
    turn_weight: float = Field(1.0, ge=1e-3, le=1e6, description="price of a change of turn rate, squared")
    separation_m: float = Field(
        0.0, ge=0.0, le=20.0, description="distance of centres kept to the other robot; 0 for no such row"
    )
    other_speed_share: float = Field(
        0.0, ge=0.0, le=1.0, description="share of the other's top speed that the separation withstands"
    )
    hard_check: bool = Field(True, description="brake and turn where the exact next position would touch")
    classifier: bool = Field(
        False, description="learn where no command is allowed, and turn back before that"
    )
    reward: SafetyReward = SafetyReward()

    @property
    def weights(self) -> tuple[float, float]:
        """Return the prices of the projection."""
        return self.speed_weight, self.turn_weight

    @property
    def acts(self) -> bool:
        """Tell whether the shield or its bounds act anywhere."""
        return self.when != "never" or self.bounds != "nominal"

    @model_validator(mode="after")
    def _no_idle_option(self) -> Self:
        fields = type(self).model_fields
        idle = {name for name in fields if getattr(self, name) != fields[name].default}
        if not self.acts and idle:
            raise ValueError(f"{min(idle)} has no effect with when = never and bounds = nominal")
        shield_only = {"speed_weight", "turn_weight", "hard_check", "classifier"} & idle
        if self.when == "never" and shield_only:
            raise ValueError(f"{min(shield_only)} has no effect with when = never")
        if self.when in ("never", "evaluation") and (self.classifier or self.reward.pays):
            name = "classifier" if self.classifier else "reward"
            raise ValueError(f"{name} needs the shield in training (when = training or always)")
        if self.other_speed_share > 0 and self.separation_m == 0:
            raise ValueError("other_speed_share has no effect with separation_m = 0")
        return self


class SafetyConfig(Section):
    """The shields of both roles."""

    pursuer: ShieldConfig = ShieldConfig()
    evader: ShieldConfig = ShieldConfig()

    def of(self, name: str) -> ShieldConfig:
        """Return a role's section."""
        return self.pursuer if name == "pursuer" else self.evader

    def active(self, name: str, use: Use) -> ShieldConfig | None:
        """Return a role's shield if it acts in training, or in evaluation."""
        shield = self.of(name)
        return shield if shield.when in (use, "always") else None
