"""The town's training program. `iterate` lives for some rounds of ticks, learning after each.

Everything that changes is in `SurviveState`; randomness is addressed by (seed, iteration, purpose).
"""

import dataclasses
import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from outlast.core import Metrics
from outlast.keys import Purpose, address
from outlast.learners import curiosity, dqn, recurrent_dqn, rnd
from outlast.learners import replay as replays
from outlast.learners.curiosity import Interest
from outlast.learners.dqn import QState
from outlast.learners.replay import Replay
from outlast.learners.shuffle import permutation
from outlast.programs import stages as curricula
from outlast.programs.lives import Lived, Lives, born, doubled, exploring, live, outlive, with_intrinsic
from outlast.programs.stages import Ends, Stages
from outlast.programs.survive_config import SurviveConfig
from outlast.programs.survive_metrics import iteration_metrics, not_yet_learnt
from outlast.worlds.town import Town, TownLevel


class SurviveState(eqx.Module):
    """Everything that changes during a run of one seed. `cells` is the layout of the run."""

    seed: Int[Array, ""]
    iteration: Int[Array, ""]
    cells: Int[Array, " places"]
    lives: Lives
    stages: Stages
    learner: QState | None
    replay: Replay | None
    novelty: rnd.Novelty | None
    interest: Interest | None


@dataclasses.dataclass(frozen=True)
class Survive:
    """The program of one configuration."""

    config: SurviveConfig
    size_fields: ClassVar = "lives.worlds, lives.horizon, replay.capacity"

    @functools.cached_property
    def world(self) -> Town:
        """Return the world that is lived in."""
        return Town(self.config.town)

    @property
    def steps_per_iteration(self) -> int:
        """Count the ticks of all worlds in one iteration of one seed."""
        return self.config.lives.worlds * self.config.lives.horizon

    @property
    def rounds(self) -> int:
        """Count the rounds of one iteration."""
        return self.config.lives.horizon // self.config.stride

    @property
    def n_memory(self) -> int:
        """Count what a resident remembers."""
        return 2 * self.config.memory.width if self.config.learner == "recurrent_dqn" else 0

    def init(self, seed: Int[Array, ""]) -> SurviveState:
        """Return the state before the first iteration."""
        config, town = self.config, self.world
        cells = town.layout(address(seed, 0, Purpose.LAYOUT))
        stages = curricula.first_stages(config.curriculum)
        lives = born(
            town,
            address(seed, 0, Purpose.WORLDS),
            self.level(cells, stages),
            stages.stage,
            config.lives.worlds,
            self.n_memory,
        )
        learner, replay, novelty, interest = None, None, None, None
        if config.learns:
            learner = self.new_learner(address(seed, 0, Purpose.NETWORKS))
            replay = replays.new_replay(
                config.replay,
                worlds=config.lives.worlds,
                n_observations=town.observation_size,
                n_actions=town.n_actions,
                n_memory=self.n_memory,
                stride=config.stride,
            )
        if config.curiosity.enabled:
            rules, key = config.curiosity, address(seed, 0, Purpose.NOVELTY)
            novelty = rnd.new_novelty(
                key, town.observation_size, hidden=rules.hidden, embedding=rules.embedding
            )
            interest = curiosity.first_interest(rules)
        zero = jnp.int32(0)
        return SurviveState(
            jnp.asarray(seed, jnp.uint32), zero, cells, lives, stages, learner, replay, novelty, interest
        )

    def new_learner(self, key: Key[Array, ""]) -> QState:
        """Return an untrained learner of the configured kind."""
        config, town = self.config, self.world
        if config.learner == "recurrent_dqn":
            return recurrent_dqn.new_learner(
                key, town.observation_fields, town.n_actions, config.q, config.memory
            )
        return dqn.new_learner(key, town.observation_fields, town.n_actions, config.q)

    def level(self, cells: Array, stages: Stages) -> TownLevel:
        """Return the level that lives are born into now."""
        none = self.config.curriculum.kind == "none"
        return self.world.level(cells, None if none else stages.stage)

    def epsilon(self, steps: Float[Array, ""]) -> Float[Array, ""]:
        """Return the share of random actions after a number of steps."""
        rules = self.config.explore
        share = jnp.clip(steps / rules.epsilon_steps, 0.0, 1.0)
        return rules.epsilon_start + share * (rules.epsilon_end - rules.epsilon_start)

    def iterate(self, state: SurviveState) -> tuple[SurviveState, Metrics]:
        """Live `horizon` ticks of every world and learn after every round of them."""
        state, happened = self.generalised(state)

        def one(state: SurviveState, index: Array) -> tuple[SurviveState, tuple[Lived, Metrics]]:
            return self.round(state, index)

        state, (lived, learnt) = jax.lax.scan(one, state, jnp.arange(self.rounds))
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), lived)
        metrics = iteration_metrics(self.config, flat, learnt)
        metrics |= happened | self.standing(state)
        return dataclasses.replace(state, iteration=state.iteration + 1), metrics

    def play(self, state: SurviveState) -> tuple[SurviveState, Lived]:
        """Live the first round of an iteration, without learning."""
        return self.lived(state, jnp.int32(0))

    def round(self, state: SurviveState, index: Array) -> tuple[SurviveState, tuple[Lived, Metrics]]:
        """Live one stride of ticks, remember them, learn from the replay, and judge the lives that ended."""
        remembered = state.lives.memory
        state, lived = self.lived(state, index)
        learnt: Metrics = {}
        if self.config.learns:
            state = dataclasses.replace(state, replay=replays.added(state.replay, lived.tick, remembered.T))
            state, learnt = self.learnt(state, index)
        return self.judged(state, lived), (self.without_tick(lived), learnt)

    def without_tick(self, lived: Lived) -> Lived:
        """Leave out what only the replay needs, so that an iteration does not hold it twice."""
        return eqx.tree_at(lambda r: (r.tick.seen, r.tick.legal), lived, (jnp.zeros(()), jnp.zeros(())))

    def lived(self, state: SurviveState, index: Array) -> tuple[SurviveState, Lived]:
        """Live one stride of ticks and find out how novel they were."""
        config, town, here = self.config, self.world, (state.seed, state.iteration)
        keys = [jax.random.fold_in(address(*here, p), index) for p in (Purpose.RESET, Purpose.ACT)]
        level = self.level(state.cells, state.stages)
        fresh = born(town, keys[0], level, state.stages.stage, config.lives.worlds, self.n_memory)
        if config.explore.births:
            fresh = exploring(
                fresh, jax.random.fold_in(address(*here, Purpose.EXPLORE), index), config.explore.births
            )
        network = state.learner.network if state.learner is not None else None
        epsilon = self.epsilon(self.steps_done(state, index))
        lives, lived = live(config, town, network, state.lives, doubled(fresh), keys[1], epsilon)
        if state.novelty is None:
            return dataclasses.replace(state, lives=lives), lived
        seen = jnp.moveaxis(lived.tick.seen, 2, 0).reshape(town.observation_size, -1)
        bonus = rnd.bonus(state.novelty, seen).reshape(lived.novelty_factor.shape)
        lives, lived = with_intrinsic(lives, lived, state.lives.intrinsic, bonus * lived.novelty_factor)
        pick_key = jax.random.fold_in(address(*here, Purpose.NOVELTY), index)
        picks = permutation(pick_key, seen.shape[1])[: config.curiosity.samples]
        novelty = rnd.learned(state.novelty, seen, picks, learning_rate=config.curiosity.learning_rate)
        return dataclasses.replace(state, lives=lives, novelty=novelty), lived

    def steps_done(self, state: SurviveState, index: Array) -> Float[Array, ""]:
        """Count the steps before a round."""
        share = index.astype(jnp.float32) / self.rounds
        return (state.iteration.astype(jnp.float32) + share) * self.steps_per_iteration

    def learnt(self, state: SurviveState, index: Array) -> tuple[SurviveState, Metrics]:
        """Update the learner as often as a round does, once the replay holds enough."""
        config, rules = self.config, self.config.replay
        steps = self.steps_done(state, index)
        key = jax.random.fold_in(address(state.seed, state.iteration, Purpose.REPLAY), index)
        share = state.interest.weight if state.interest is not None else jnp.float32(0)
        given = {"config": config.q, "rules": rules, "share": share, "rate": dqn.step_size(config.q, steps)}
        if config.learner == "recurrent_dqn":
            learn = functools.partial(recurrent_dqn.learn, memory=config.memory, **given)
        else:
            past = jnp.clip(steps / rules.beta_steps, 0.0, 1.0)
            learn = functools.partial(dqn.learn, beta=rules.beta + past * (1 - rules.beta), **given)

        def update(carry: tuple[QState, Replay], one: Array) -> tuple[tuple[QState, Replay], Metrics]:
            learner, replay, measures = learn(*carry, jax.random.fold_in(key, one))
            return (learner, replay), measures

        def updates(carry: tuple[QState, Replay]) -> tuple[tuple[QState, Replay], Metrics]:
            carry, measures = jax.lax.scan(update, carry, jnp.arange(rules.updates))
            return carry, jax.tree.map(lambda m: jnp.mean(m), measures)

        carry = (state.learner, state.replay)
        if not rules.updates:
            return state, {}
        nothing = not_yet_learnt(jax.eval_shape(updates, carry)[1])
        # In ticks of every world: transitions may be more than an int32 counts.
        ready = state.replay.written >= max(-(-rules.starts // config.lives.worlds), config.least_rows)
        (learner, replay), measures = jax.lax.cond(ready, updates, lambda c: (c, nothing), carry)
        return dataclasses.replace(state, learner=learner, replay=replay), measures

    def judged(self, state: SurviveState, lived: Lived) -> SurviveState:
        """Show the lives that ended to the curriculum and to curiosity, each once, and total the novelty of lives."""
        config, longest = self.config, jnp.float32(min(self.config.town.max_steps, self.config.town.lifespan))
        ended, survival = lived.ended.ravel(), lived.survival.ravel().astype(jnp.float32)
        stages, interest = state.stages, state.interest
        if config.curriculum.kind == "adversarial":
            gained = (lived.extrinsic_total + lived.shaping_total).ravel()
            per_tick = gained / jnp.maximum(survival, 1.0)
            ends = Ends(ended, lived.stage.ravel(), survival, per_tick, lived.entropy.ravel())
            stages = curricula.judged(stages, ends, longest, len(config.town.stages), config.curriculum)
        if interest is not None:
            interest = curiosity.annealed(interest, survival, ended, longest, config.curiosity)
        return dataclasses.replace(state, stages=stages, interest=interest)

    def generalised(self, state: SurviveState) -> tuple[SurviveState, Metrics]:
        """Draw a new layout when the event is due, with greedy survival measured before and after."""
        rules = self.config.generalisation
        if not rules.at_steps:
            return state, {}
        due = state.iteration == -(-rules.at_steps // self.steps_per_iteration)
        unknown = jnp.float32(jnp.nan)
        key = address(state.seed, state.iteration, Purpose.LAYOUT)

        def happens(cells: Array) -> tuple[Array, Array, Array]:
            new = self.world.drawn_layout(key)
            return new, self.mean_survival(state, cells, key), self.mean_survival(state, new, key)

        cells, before, after = jax.lax.cond(due, happens, lambda c: (c, unknown, unknown), state.cells)
        metrics = {"generalisation/before": before, "generalisation/after": after}
        return dataclasses.replace(state, cells=cells), metrics

    def mean_survival(self, state: SurviveState, cells: Array, key: Key[Array, ""]) -> Float[Array, ""]:
        """Return the mean survival of greedy lives at full difficulty in a layout."""
        lives = born(
            self.world,
            key,
            self.world.level(cells),
            jnp.int32(0),
            self.config.generalisation.lives,
            self.n_memory,
        )
        network = state.learner.network if state.learner is not None else None
        outlived, _ = outlive(self.config, self.world, network, lives, key, 0.0)
        return jnp.mean(outlived.survival.astype(jnp.float32))

    def standing(self, state: SurviveState) -> Metrics:
        """Return where exploration, curiosity and the curriculum stand after an iteration."""
        metrics: Metrics = {}
        if self.config.learns:
            steps = (state.iteration + 1).astype(jnp.float32) * self.steps_per_iteration
            metrics["explore/epsilon"] = self.epsilon(steps)
        if state.interest is not None:
            metrics["curiosity/weight"] = state.interest.weight
        if self.config.curriculum.kind == "adversarial":
            stages = state.stages
            metrics |= {
                "curriculum/stage": stages.stage + 1,
                "curriculum/survival": stages.survival.mean,
                "curriculum/progress": curricula.progress(stages),
                "curriculum/entropy": stages.entropy.mean,
                "curriculum/advances": stages.advances,
                "curriculum/retreats": stages.retreats,
            }
        return metrics

    def score(self, metrics: dict[str, float]) -> float:
        """Return how long lives are, for keeping the best checkpoint."""
        return metrics["episode/steps"] * metrics.get("curriculum/stage", 1.0)

    def note(self, metrics: dict[str, np.ndarray]) -> str:
        """Say in a few words how training goes."""
        lives = np.sum(metrics["episodes"])
        if not lives:
            return "no life ended yet"
        survival = np.nansum(metrics["episode/steps"] * metrics["episodes"]) / lives
        stage = metrics.get("curriculum/stage")
        return f"survival {survival:.0f}" + (f", stage {np.mean(stage):.1f}" if stage is not None else "")

    def policies(self, state: SurviveState) -> dict[str, PyTree]:
        """Return what is needed to live: the network, and the layout of the run."""
        network = {} if state.learner is None else {"network": state.learner.network}
        return {"cells": state.cells, **network}

    def players(self, policies: PyTree) -> PyTree:
        """Return what is needed to live, from a light policy file."""
        return policies
