"""The original trainer's command line: one table of its flags, each with the fields of the config that it decides.

Only light imports stand here, because `--help` reads the table. A flag without a meaning here is refused by name.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

Fields = dict[str, Any]
LEVEL, REWARD, SENSING = "arena.level.", "arena.reward.", "arena.sensing."
SCHEDULE, CURRICULUM = "selfplay.schedule.", "selfplay.curriculum."
LEAGUE, HARD, EVALUATION = "selfplay.league.", "selfplay.stabilisers.", "selfplay.evaluation."
FREEZE, COLD = SCHEDULE + "alternate_freeze.", SCHEDULE + "cold_start."
SHIELD = "safety.pursuer."
FILTER = tuple(SHIELD + name for name in ("when", "kappa_per_s", "separation_m", "margin_m"))
LATER_OBSTACLES, FIRST_PHASE, ROBOTS_APART_M = 3, 100_000, 0.35


@dataclass(frozen=True)
class Line:
    """A command line: what was given, and the config underneath, which lends what the original leaves open."""

    given: Mapping[str, Any]
    base: Any

    def __getitem__(self, name: str) -> Any:
        """Return the value of a flag; where it was not given, the original's default."""
        return self.given[name] if name in self.given else FLAGS[name].default

    def has(self, *names: str) -> bool:
        """Tell whether any of these flags was given."""
        return any(name in self.given for name in names)

    @property
    def adapts(self) -> bool:
        """Tell whether a curriculum is asked for."""
        return self["curriculum"] or self["smooth_curriculum"]


@dataclass(frozen=True)
class Flag:
    """One flag of the original with its type and default there, and what it decides here."""

    name: str
    kind: Any
    default: Any
    paths: tuple[str, ...] = ()
    rule: Callable[[Line], Fields] | None = None
    refused: str = ""
    unless: str = ""
    place: str = ""

    @property
    def about(self) -> str:
        """Say in a line what the flag decides."""
        if self.refused:
            return f"refused{f' but for {self.unless}' if self.unless else ''}: {self.refused}"
        there = "on or off" if self.kind is bool else f"original: {self.default}"
        return f"{self.place or ', '.join(self.paths)} ({there})"


def refuse(text: str) -> NoReturn:
    """Refuse a command line."""
    from outlast.config import BadInput

    raise BadInput(text)


def needs(line: Line, name: str, *others: str) -> None:
    """Refuse a flag that would do nothing without one of the others."""
    if line.has(name) and not any(line[other] for other in others):
        refuse(f"--{name} has no effect without {' or '.join(f'--{other}' for other in others)}")


def safety(line: Line) -> Fields:
    """Give the pursuer the original's filter in training, which is on unless `--no_dcbf` is given."""
    if not line["no_dcbf"]:
        return {
            SHIELD + "when": "training",
            SHIELD + "kappa_per_s": line["gamma"] / line.base.arena.dt_s,
            SHIELD + "separation_m": ROBOTS_APART_M,
            SHIELD + "margin_m": 0.0,
        }
    if line.has("use_dcbf"):
        refuse("--use_dcbf and --no_dcbf: give one of them")
    if line.has("gamma"):
        refuse(
            "--gamma (the filter's decay, not the discount) has no effect with --no_dcbf; "
            "the discount is --set ppo.discount=..."
        )
    return {}


def spawn(line: Line) -> Fields:
    """Give the first distances; a curriculum decides them itself, but for the least one of the smooth kind."""
    if (line.adapts and line.has("max_init_distance")) or (
        line["curriculum"] and line.has("min_init_distance")
    ):
        refuse("--min_init_distance and --max_init_distance have no effect here: the curriculum decides")
    least = line.given.get("min_init_distance", 2.0 if line["smooth_curriculum"] else 3.0)
    return {LEVEL + "spawn_min_m": least, LEVEL + "spawn_max_m": line["max_init_distance"]}


def obstacles(line: Line) -> Fields:
    """Count obstacles, and how many are observed: all that the level begins with, unless the line says."""
    if line.has("n_obstacles_min") != line.has("n_obstacles_max"):
        refuse("--n_obstacles_min and --n_obstacles_max belong together: give both, or neither")
    if line["curriculum"] and line.has("min_obstacles"):
        refuse("--min_obstacles has no effect with --curriculum: its levels say how many")
    n, floor, smooth = line["n_obstacles"], line["min_obstacles"], line["smooth_curriculum"]
    ranged = line.has("n_obstacles_min")
    few, most = (line["n_obstacles_min"], line["n_obstacles_max"]) if ranged else (n, n)
    fields = {CURRICULUM + "min_obstacles": floor} if smooth else {}
    few, most = (few, most) if smooth else (max(few, floor), max(most, floor))
    slots = max(n, most, floor, line["n_obstacle_obs"], LATER_OBSTACLES if line.adapts else 0)
    observed = line["n_obstacle_obs"] if line.has("n_obstacle_obs") else most or slots
    return fields | {
        LEVEL + "obstacles_min": few,
        LEVEL + "obstacles_max": most,
        "arena.obstacle_slots": slots,
        "arena.observed_obstacles": observed,
    }


def hiding(line: Line) -> Fields:
    """Choose how the evader is paid between the ends of an episode."""
    needs(line, "visibility_weight", "use_visibility_reward")
    if not line["use_visibility_reward"]:
        mode, weight = "occlusion" if line["w_occlusion"] else "zero_sum", line["w_occlusion"]
    elif line["w_occlusion"]:
        refuse("--w_occlusion has no effect with --use_visibility_reward; give one of them")
    else:
        mode, weight = "visibility", line["visibility_weight"]
    return {REWARD + "evader_mode": mode, REWARD + "hiding": weight}


def sight(line: Line) -> Fields:
    """Mask by range or cone, by sight where neither is given, and by all of them when combined."""
    masks = ("sensing_radius", "fov_angle")
    needs(line, "combined_masking", *masks)
    if not line["partial_obs_los"]:
        for name in (*masks, "combined_masking", "asymmetric_obs"):
            needs(line, name, "partial_obs_los")
        return {}
    return {
        SENSING + "mode": "partial",
        SENSING + "radius_m": line["sensing_radius"] or 0.0,
        SENSING + "cone_deg": line["fov_angle"] or 0.0,
        SENSING + "line_of_sight": line["combined_masking"] or not any(line[name] for name in masks),
        SENSING + "evader_sees_all": line["asymmetric_obs"],
    }


def rollout(line: Line) -> Fields:
    """Map environments, steps and batch size; what is not given is the config's underneath."""
    collect, league = line.base.collect, line.base.selfplay.league
    worlds, horizon = line.given.get("n_envs", collect.worlds), line.given.get("n_steps", collect.horizon)
    history = league.history if line["opponent_pool_size"] else 0.0
    past = int(worlds * history / (1 + history))
    groups = max(1, min(league.groups, past))
    rows = (worlds - past + past % groups) * horizon
    batches = rows // max(line["batch_size"], 1) if line.has("batch_size") else line.base.ppo.minibatches
    fits = (n for n in range(max(1, min(batches, rows)), 0, -1) if rows % n == 0)
    fields = {"collect.worlds": worlds, "collect.horizon": horizon, "ppo.minibatches": next(fits)}
    return fields | ({LEAGUE + "groups": groups} if history else {})


def pool(line: Line) -> Fields:
    """Size the pools and space their snapshots; without a pool nobody meets the past."""
    if not line["opponent_pool_size"]:
        needs(line, "snapshot_freq_micro", "opponent_pool_size")
        return {LEAGUE + "capacity": 0, LEAGUE + "history": 0.0}
    needs(line, "snapshot_freq_micro", "micro_phase_steps")
    every = line["snapshot_freq_micro"] * line["micro_phase_steps"]
    return {
        LEAGUE + "capacity": line["opponent_pool_size"],
        LEAGUE + "history": line.base.selfplay.league.history,
        LEAGUE + "snapshot_steps": every or _evaluation_steps(line),
    }


def _evaluation_steps(line: Line) -> int:
    if line["micro_phase_steps"]:
        return line["eval_interval_micro"] * line["micro_phase_steps"]
    return FIRST_PHASE if line["phase_warmup"] else line["timesteps_per_phase"]


def phases(line: Line) -> Fields:
    """Choose micro-phases, or long phases with an evaluation after each."""
    micro, long = line["micro_phase_steps"], line["timesteps_per_phase"]
    needs(line, "eval_interval_micro", "micro_phase_steps")
    fields = {EVALUATION + "every_steps": _evaluation_steps(line), "run.steps": budget(line)}
    if micro:
        return fields | {SCHEDULE + "kind": "micro", SCHEDULE + "micro_phase_steps": micro}
    limits = {SCHEDULE + "phase_steps": long, SCHEDULE + "max_phases": line["max_phases"]}
    return fields | limits | {SCHEDULE + "kind": "phases"}


def budget(line: Line) -> int:
    """Return the steps that the line asks for: a budget, or what its number of phases comes to."""
    if line["max_total_steps"]:
        return line["max_total_steps"]
    micro, long = line["micro_phase_steps"], line["timesteps_per_phase"]
    if micro:
        return line["max_phases"] * (long // micro) * micro
    begin = [FIRST_PHASE * k for k in (1, 1, 2, 2, 3, 3)] if line["phase_warmup"] else []
    lengths = (begin + [long] * max(line["max_phases"] - len(begin), 0))[: line["max_phases"]]
    longer = line["evader_multiplier"] if obstacles(line)["arena.obstacle_slots"] else 1.0
    evaders = sum(length * (longer - 1) for length in lengths[1::2])
    return math.ceil(sum(lengths) + evaders) + _cold_steps(line)


def _cold_steps(line: Line) -> int:
    on = line.has("cold_start_timesteps") or not line["full_obs"]
    return line["cold_start_timesteps"] if on else 0


def cold_start(line: Line) -> Fields:
    """Begin with the evader alone, as the original does without `--full_obs`."""
    steps = _cold_steps(line)
    return {COLD + "enabled": True, COLD + "steps": steps} if steps else {}


def curriculum(line: Line) -> Fields:
    """Choose the curriculum and what an advance asks for."""
    if line["curriculum"] and line["smooth_curriculum"]:
        refuse("--curriculum and --smooth_curriculum: give one of them")
    kind = "smooth" if line["smooth_curriculum"] else "discrete" if line["curriculum"] else "none"
    gate = "dual" if line["min_escape_rate"] else "capture"
    return {
        CURRICULUM + "kind": kind,
        CURRICULUM + "gate": "ne_gap" if line["ne_gap_advancement"] else gate,
        CURRICULUM + "min_escape_rate": line["min_escape_rate"],
    }


def warm_evader(line: Line) -> Fields:
    """Train the evader against the random pursuer after an advance."""
    needs(line, "warm_start_timesteps", "warm_start_evader")
    return {CURRICULUM + "warm_start_steps": line["warm_start_timesteps"] if line["warm_start_evader"] else 0}


def novelty_samples(line: Line) -> Fields:
    """Give a predictor update the observations that the original gathers for one."""
    return {HARD + "rnd.update_samples": line["rnd_update_freq"] * line["n_envs"]} if line["rnd_coef"] else {}


def freeze(line: Line) -> Fields:
    """Read the thresholds that replace one another, `step:threshold,...`; that of step 0 is the first one."""
    text = line["freeze_thr_schedule"]
    try:
        pairs = [pair.split(":") for pair in text.split(",")] if text else []
        schedule = [[int(step), float(threshold)] for step, threshold in pairs]
    except ValueError:
        refuse(f"--freeze_thr_schedule {text!r}: write it as step:threshold,step:threshold")
    first = [threshold for step, threshold in schedule if step == 0]
    if first and line.has("freeze_switch_threshold"):
        refuse("--freeze_switch_threshold has no effect with a --freeze_thr_schedule that begins at step 0")
    later = {FREEZE + "schedule": [pair for pair in schedule if pair[0] != 0]} if schedule else {}
    return later | ({FREEZE + "threshold": first[-1]} if first else {})


def when_given(name: str, path: str) -> Callable[[Line], Fields]:
    """Make a rule that leaves our own default alone while the flag is not given."""
    return lambda line: {path: line[name]} if line.has(name) else {}


def switched(name: str, section: str, field: str) -> Callable[[Line], Fields]:
    """Make a rule that switches a section on where a number is not 0."""
    return lambda line: {f"{section}.enabled": True, f"{section}.{field}": line[name]} if line[name] else {}


def _switched(name: str, section: str, field: str, kind: type = float) -> Flag:
    paths = (f"{section}.enabled", f"{section}.{field}")
    return Flag(name, kind, kind(0), paths, switched(name, section, field))


def _own(name: str, kind: type, default: Any, path: str) -> Flag:
    return Flag(name, kind, default, (path,), when_given(name, path))


PHASED = (SCHEDULE + "kind", SCHEDULE + "phase_steps", SCHEDULE + "max_phases", EVALUATION + "every_steps")
COUNTS = ("arena.obstacle_slots", "arena.observed_obstacles")
OBSTACLES = (LEVEL + "obstacles_min", LEVEL + "obstacles_max", *COUNTS)
PAID = (REWARD + "evader_mode", REWARD + "hiding")
NO_DICT = "there is no dictionary observation; `arena.observation` has two flat layouts"
NO_UNMASKING = (
    "no coin shows what is masked; --asymmetric_obs or a larger --sensing_radius make seeing easier"
)
NO_FILES = (
    "model files of the original are programs (pickle) and are not read; `outlast resume` goes on with a run"
)
PPO_ONLY = "every learner of the arena is PPO"
NO_LSTM, NO_SAC = f"{PPO_ONLY}, without memory", f"{PPO_ONLY}: no replay, no target network"

GROUPS: dict[str, tuple[Flag, ...]] = {
    "game": (
        Flag("arena_width", float, 20.0, (LEVEL + "width_m",)),
        Flag("arena_height", float, 20.0, (LEVEL + "height_m",)),
        Flag("max_steps", int, 1200, (LEVEL + "max_steps",)),
        Flag("capture_radius", float, 0.5, (LEVEL + "capture_radius_m",)),
        Flag("pursuer_v_max", float, 1.0, (LEVEL + "pursuer_speed_mps",)),
        Flag("evader_v_max", float, 1.0, (LEVEL + "evader_speed_mps",)),
        Flag("fixed_speed", bool, False, ("arena.fixed_speed",)),
        Flag("prep_steps", int, 0, (LEVEL + "prep_steps",)),
        Flag("min_init_distance", float, 3.0, (LEVEL + "spawn_min_m",), spawn),
        Flag("max_init_distance", float, 15.0, (LEVEL + "spawn_max_m",), spawn),
        Flag("n_obstacles", int, 0, OBSTACLES, obstacles),
        Flag("n_obstacles_min", int, None, OBSTACLES, obstacles),
        Flag("n_obstacles_max", int, None, OBSTACLES, obstacles),
        Flag("min_obstacles", int, 0, (*OBSTACLES, CURRICULUM + "min_obstacles"), obstacles),
        Flag("n_obstacle_obs", int, 0, COUNTS, obstacles),
    ),
    "sight": (
        Flag("full_obs", bool, False, (COLD + "enabled", COLD + "steps", "run.steps"), cold_start),
        Flag("partial_obs_los", bool, False, (SENSING + "mode",), sight),
        Flag("asymmetric_obs", bool, False, (SENSING + "evader_sees_all",), sight),
        Flag("sensing_radius", float, None, (SENSING + "radius_m", SENSING + "line_of_sight"), sight),
        Flag("fov_angle", float, None, (SENSING + "cone_deg", SENSING + "line_of_sight"), sight),
        Flag("combined_masking", bool, False, (SENSING + "line_of_sight",), sight),
        Flag("masking_curriculum", bool, False, refused=NO_UNMASKING),
        Flag("p_full_anneal_steps", int, 5_000_000, refused=NO_UNMASKING),
        Flag("p_full_residual", float, 0.0, refused=NO_UNMASKING),
        Flag("encoder_type", ("bimdn", "lstm", "mlp"), "bimdn", refused=NO_DICT),
        Flag("history_length", int, 10, refused=NO_DICT),
    ),
    "reward": (
        Flag("distance_scale", float, 1.0, (REWARD + "distance_scale",)),
        Flag("capture_bonus", float, 100.0, (REWARD + "capture_bonus",)),
        Flag("timeout_penalty", float, -100.0, (REWARD + "timeout_penalty",)),
        Flag("w_occlusion", float, 0.0, PAID, hiding),
        Flag("use_visibility_reward", bool, False, PAID, hiding),
        Flag("visibility_weight", float, 1.0, (REWARD + "hiding",), hiding),
        Flag("survival_bonus", float, 0.0, (REWARD + "survival_bonus",)),
        Flag("w_obs_approach", float, 0.0, (REWARD + "obstacle_approach",)),
        Flag("w_collision", float, 0.0, (REWARD + "obstacle_contact",)),
        Flag("w_wall", float, 0.0, (REWARD + "wall_contact",)),
        Flag("w_vis_pursuer", float, 0.0, (REWARD + "pursuer_visibility",)),
        Flag("w_search", float, 0.0, (REWARD + "search",)),
        Flag("t_stale", int, 50, (REWARD + "stale_steps",)),
    ),
    "schedule": (
        Flag("max_phases", int, 12, ("run.steps", SCHEDULE + "max_phases"), phases),
        Flag("timesteps_per_phase", int, 500_000, ("run.steps", LEAGUE + "snapshot_steps", *PHASED), phases),
        Flag("max_total_steps", int, 0, ("run.steps",), phases),
        Flag(
            "micro_phase_steps",
            int,
            0,
            ("run.steps", SCHEDULE + "micro_phase_steps", LEAGUE + "snapshot_steps", *PHASED),
            phases,
        ),
        Flag("eval_interval_micro", int, 50, (EVALUATION + "every_steps",), phases),
        Flag("snapshot_freq_micro", int, 5, (LEAGUE + "snapshot_steps",), pool),
        Flag(
            "cold_start_timesteps", int, 200_000, (COLD + "enabled", COLD + "steps", "run.steps"), cold_start
        ),
        Flag(
            "phase_warmup",
            bool,
            False,
            (
                SCHEDULE + "warm_up.enabled",
                "run.steps",
                EVALUATION + "every_steps",
                LEAGUE + "snapshot_steps",
            ),
        ),
        Flag("evader_multiplier", float, 1.0, (SCHEDULE + "evader_multiplier", "run.steps")),
        Flag("train_ratio", int, 1, (SCHEDULE + "train_ratio",)),
        Flag("freeze_role", ("pursuer", "evader"), "none", (SCHEDULE + "freeze",)),
        Flag("alternate_freeze", bool, False, (FREEZE + "enabled",)),
        Flag("freeze_switch_threshold", float, 0.6, (FREEZE + "threshold",)),
        Flag("freeze_switch_consecutive", int, 1, (FREEZE + "consecutive",)),
        Flag("freeze_thr_schedule", str, "", (FREEZE + "schedule", FREEZE + "threshold"), freeze),
        Flag("self_play_start_steps", int, 0, (FREEZE + "both_from_steps",)),
        Flag("force_first_switch_steps", int, 0, (FREEZE + "force_first_steps",)),
        Flag("force_switch_steps", int, 0, (FREEZE + "force_steps",)),
        _switched("adaptive_ratio_threshold", SCHEDULE + "adaptive_ratio", "threshold"),
        Flag("adaptive_boost_phases", int, 20, (SCHEDULE + "adaptive_ratio.boost_phases",)),
        _switched("lr_dampen_threshold", SCHEDULE + "dampening", "threshold"),
    ),
    "pool, stabilisers and novelty": (
        Flag(
            "opponent_pool_size",
            int,
            0,
            (*(LEAGUE + n for n in ("capacity", "history", "groups", "snapshot_steps")), "ppo.minibatches"),
            pool,
        ),
        Flag("pfsp", bool, False, (HARD + "collapse.hard_opponents",)),
        Flag("bilateral_rollback", bool, False, (HARD + "rollback.enabled",)),
        _switched("collapse_threshold", HARD + "collapse", "threshold"),
        Flag("collapse_streak_limit", int, 3, (HARD + "collapse.streak",)),
        _switched("ewc_lambda", HARD + "ewc", "weight"),
        Flag("ewc_fisher_samples", int, 1024, (HARD + "ewc.samples",)),
        _switched("rnd_coef", HARD + "rnd", "weight"),
        Flag("rnd_embed_dim", int, 64, (HARD + "rnd.embedding",)),
        Flag("rnd_hidden_dim", int, 128, (HARD + "rnd.hidden",)),
        Flag("rnd_update_freq", int, 256, (HARD + "rnd.update_samples",), novelty_samples),
    ),
    "curriculum": (
        Flag("curriculum", bool, False, (CURRICULUM + "kind", *COUNTS), curriculum),
        Flag(
            "smooth_curriculum",
            bool,
            False,
            (CURRICULUM + "kind", *OBSTACLES, CURRICULUM + "min_obstacles", LEVEL + "spawn_min_m"),
            curriculum,
        ),
        Flag("smooth_curriculum_increment", float, 0.5, (CURRICULUM + "increment_m",)),
        Flag("ne_gap_advancement", bool, False, (CURRICULUM + "gate",), curriculum),
        Flag("ne_gap_threshold", float, 0.15, (CURRICULUM + "ne_gap",)),
        Flag("ne_gap_consecutive", int, 2, (CURRICULUM + "consecutive",)),
        Flag("min_phases_per_level", int, 1, (CURRICULUM + "min_phases",)),
        Flag(
            "min_escape_rate", float, 0.0, (CURRICULUM + "gate", CURRICULUM + "min_escape_rate"), curriculum
        ),
        Flag("evader_first_on_advance", bool, False, (CURRICULUM + "evader_first",)),
        Flag("warm_start_evader", bool, False, (CURRICULUM + "warm_start_steps",), warm_evader),
        Flag("warm_start_timesteps", int, 50_000, (CURRICULUM + "warm_start_steps",), warm_evader),
        Flag("mixed_level_ratio", float, 0.0, (CURRICULUM + "mixed_levels",)),
    ),
    "evaluation and run": (
        Flag("eta", float, 0.10, (EVALUATION + "eta",)),
        _own("eval_episodes", int, 100, EVALUATION + "games"),
        Flag("convergence_consecutive", int, 5, (EVALUATION + "consecutive",)),
        Flag("seed", int, 42, place="the run's seed, `seeds.json`"),
        Flag("output", str, "results/amsdrl", place="the run directory"),
    ),
    "safety": (
        Flag("use_dcbf", bool, True, FILTER, safety),
        Flag("no_dcbf", bool, False, FILTER, safety),
        Flag("gamma", float, 0.2, (SHIELD + "kappa_per_s",), safety),
    ),
    "learner": (
        Flag("algorithm", ("ppo", "sac", "recurrent_ppo"), "ppo", refused=PPO_ONLY, unless="ppo"),
        _own("learning_rate", float, 3e-4, "ppo.learning_rate"),
        _own("ent_coef", float, 0.01, "ppo.entropy_weight"),
        _own("n_epochs", int, 10, "ppo.epochs"),
        Flag("n_envs", int, 4, ("collect.worlds", "ppo.minibatches", LEAGUE + "groups"), rollout),
        Flag("n_steps", int, 512, ("collect.horizon", "ppo.minibatches"), rollout),
        Flag("batch_size", int, 256, ("ppo.minibatches",), rollout),
        *(Flag(f"init_{role}_model", str, None, refused=NO_FILES) for role in ("pursuer", "evader")),
        *(Flag(f"init_{role}_algo", str, None, refused=NO_FILES) for role in ("pursuer", "evader")),
        Flag("lstm_hidden_size", int, 256, refused=NO_LSTM),
        Flag("n_lstm_layers", int, 1, refused=NO_LSTM),
        Flag("buffer_size", int, 1_000_000, refused=NO_SAC),
        Flag("learning_starts", int, 1000, refused=NO_SAC),
        Flag("sac_batch_size", int, 256, refused=NO_SAC),
        Flag("tau", float, 0.005, refused=NO_SAC),
        Flag("train_freq", int, 1, refused=NO_SAC),
        Flag("gradient_steps", int, 1, refused=NO_SAC),
    ),
}
FLAGS = {flag.name: flag for flags in GROUPS.values() for flag in flags}


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare every flag; what is not given stays out of the result."""
    for title, flags in GROUPS.items():
        group = command.add_argument_group(title)
        for flag in flags:
            options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": flag.about}
            if flag.kind is bool:
                options |= {"action": "store_true"}
            elif isinstance(flag.kind, tuple):
                options |= {"choices": flag.kind}
            else:
                options |= {"type": flag.kind, "metavar": flag.kind.__name__.upper()}
            group.add_argument(f"--{flag.name}", **options)


def decided(given: Mapping[str, Any], base: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields that a command line decides, with their values; refuse what has no meaning here."""
    for name, value in given.items():
        flag = FLAGS[name]
        if flag.refused and not flag.rule and value != flag.unless:
            refuse(f"--{name} has no meaning here: {flag.refused}")
    line = Line(given, base)
    yield from {"arena.observation": "absolute", "arena.spawn": "area"}.items()
    for flag in FLAGS.values():
        if flag.rule is None and flag.paths:
            yield flag.paths[0], line[flag.name]
    for rule in dict.fromkeys(flag.rule for flag in FLAGS.values() if flag.rule):
        yield from rule(line).items()
