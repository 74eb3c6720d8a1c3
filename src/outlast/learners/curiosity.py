"""How much novelty counts: a weight that shrinks once lives have become long and alike."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from pydantic import Field

from outlast.config import Section
from outlast.learners.recent import Recent, nothing_recent, pushed


class CuriosityConfig(Section):
    """Reward for unfamiliar observations (random network distillation), with an annealed weight."""

    enabled: bool = Field(False, description="whether novelty is rewarded")
    weight: float = Field(
        0.1, ge=0.0, le=1000.0, description="weight of a novelty of one deviation, at first"
    )
    hidden: int = Field(64, ge=1, le=2048, description="width of both networks")
    embedding: int = Field(32, ge=1, le=2048, description="outputs of both networks")
    learning_rate: float = Field(1e-4, ge=1e-7, le=1.0, description="step size of the predictor")
    samples: int = Field(256, ge=1, le=65_536, description="observations a predictor update learns from")
    anneal: bool = Field(True, description="shrink the weight once survival is long and steady")
    window: int = Field(100, ge=2, le=100_000, description="lives looked back on")
    variance_below: float = Field(
        100.0, gt=0.0, le=1e12, description="variance of survival, in ticks squared, that counts as steady"
    )
    least_survival: float = Field(
        0.5, ge=0.0, le=1.0, description="mean survival that counts as long, as a share of the longest life"
    )
    share_kept: float = Field(
        0.99, gt=0.0, lt=1.0, description="share of the weight kept after each such life"
    )

    def model_post_init(self, context: object) -> None:
        """Refuse settings that would do nothing."""
        fields = type(self).model_fields
        idle = [name for name in fields if name != "enabled" and not self.enabled]
        idle += [
            name
            for name in ("window", "variance_below", "least_survival", "share_kept")
            if self.enabled and not self.anneal
        ]
        for name in idle:
            if getattr(self, name) != fields[name].default:
                switch = "enabled" if not self.enabled else "anneal"
                raise ValueError(f"{name} has no effect with {switch} = false")


class Interest(eqx.Module):
    """The weight of novelty, and the survival of the last lives."""

    weight: Float[Array, ""]
    survival: Recent


def first_interest(config: CuriosityConfig) -> Interest:
    """Return the interest before the first life."""
    return Interest(jnp.float32(config.weight), nothing_recent(config.window))


def annealed(
    interest: Interest,
    survival: Float[Array, " N"],
    ended: Bool[Array, " N"],
    longest: Float[Array, ""],
    config: CuriosityConfig,
) -> Interest:
    """Take in the lives that ended, survivors too; shrink the weight once for each if lives are long and alike."""
    recent = pushed(interest.survival, survival, ended)
    steady = recent.full & (recent.variance < config.variance_below)
    long = recent.mean > config.least_survival * longest
    shrink = jnp.float32(config.share_kept) ** jnp.sum(ended)
    weight = jnp.where(steady & long & config.anneal, interest.weight * shrink, interest.weight)
    return Interest(weight, recent)
