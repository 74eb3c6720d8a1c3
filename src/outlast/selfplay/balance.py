"""What evaluations say about a pair: the gap between the sides, panel scores, convergence, and collapse.

The gap |SR_P - SR_E| measures balance and is called that; it is no measure of equilibrium, exploitability is.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from outlast.selfplay.config import CollapseConfig, EvaluationConfig


class Balance(eqx.Module):
    """What the evaluations so far have shown. Arrays of two are indexed by role."""

    capture_rate: Float[Array, ""]
    evaluations: Int[Array, ""]
    balanced_streak: Int[Array, ""]
    converged: Bool[Array, ""]
    panel: Float[Array, "2"]
    best_panel: Float[Array, "2"]
    losing_streak: Int[Array, "2"]
    restores: Int[Array, "2"]

    @property
    def gap(self) -> Float[Array, ""]:
        """Return the gap between the success rates of the sides at the last evaluation; 1 before any."""
        return jnp.where(self.evaluations > 0, jnp.abs(2 * self.capture_rate - 1), 1.0)


def first_balance() -> Balance:
    """Return the balance before any evaluation."""
    zeros = jnp.zeros(2)
    return Balance(
        capture_rate=jnp.float32(0.5),
        evaluations=jnp.int32(0),
        balanced_streak=jnp.int32(0),
        converged=jnp.bool_(False),
        panel=zeros,
        best_panel=zeros - 1.0,
        losing_streak=jnp.zeros(2, jnp.int32),
        restores=jnp.zeros(2, jnp.int32),
    )


def after_evaluation(
    balance: Balance,
    capture_rate: Float[Array, ""],
    panel: Float[Array, "2"],
    *,
    config: EvaluationConfig,
    collapse: CollapseConfig,
    at_last_level: Bool[Array, ""],
) -> Balance:
    """Take in one evaluation. Convergence is balance, again and again, at the last level, with no panel score lost."""
    gap = jnp.abs(2 * capture_rate - 1)
    best = jnp.maximum(balance.best_panel, panel)
    kept = jnp.all(panel >= best - config.panel_margin) | (config.panel_games == 0)
    streak = jnp.where((gap < config.eta) & at_last_level & kept, balance.balanced_streak + 1, 0)
    own = jnp.stack([capture_rate, 1 - capture_rate])
    losing = jnp.where(own < collapse.threshold, balance.losing_streak + 1, 0)
    return Balance(
        capture_rate=capture_rate,
        evaluations=balance.evaluations + 1,
        balanced_streak=streak,
        converged=balance.converged | (streak >= config.consecutive),
        panel=panel,
        best_panel=best,
        losing_streak=losing,
        restores=balance.restores,
    )


def collapsed(balance: Balance, collapse: CollapseConfig) -> Bool[Array, "2"]:
    """Tell which roles have lost so often in a row that they are to be restored."""
    return balance.losing_streak >= collapse.streak


def after_restore(balance: Balance, restored: Bool[Array, "2"]) -> Balance:
    """Begin a new streak for the roles that were restored."""
    return eqx.tree_at(
        lambda b: (b.losing_streak, b.restores),
        balance,
        (jnp.where(restored, 0, balance.losing_streak), balance.restores + restored),
    )


def chosen(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """Return one of two trees of equal structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
