"""The original's command line: what each flag decides, what is refused, and the two runs of the originals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import cli
from outlast.cli import parser
from outlast.cli.amsdrl import config_of, differences, given_flags
from outlast.cli.flags import FLAGS, GROUPS
from outlast.config import BadInput, fields
from outlast.programs import from_preset
from outlast.programs.duel_config import DuelConfig

RA1 = (
    "--micro_phase_steps 4096 --eval_interval_micro 50 --snapshot_freq_micro 5 --evader_v_max 1.15 "
    "--capture_bonus 10.0 --timeout_penalty -10.0 --survival_bonus 0.02 --use_visibility_reward "
    "--visibility_weight 0.1 --n_obstacles 2 --min_obstacles 2 --min_init_distance 2.0 --max_init_distance 10.0 "
    "--max_steps 600 --max_phases 1000 --opponent_pool_size 20 --w_obs_approach 50.0 --prep_steps 50 "
    "--pursuer_v_max 1.0 --fixed_speed --arena_width 20 --arena_height 20 --no_dcbf --full_obs --seed 47 "
    "--output results/run_RA1_no_curriculum"
)
SPAWNS = "--min_init_distance 2.0 --max_init_distance 10.0 "
RA2 = (
    RA1.replace(SPAWNS, "").replace("RA1_no", "RA2_distance")
    + " --smooth_curriculum --smooth_curriculum_increment 1.0 --ne_gap_advancement --ne_gap_threshold 0.15 "
    "--ne_gap_consecutive 3 --min_phases_per_level 2"
)
PHASES = "--no_dcbf --full_obs --opponent_pool_size 5"
MICRO = f"{PHASES} --micro_phase_steps 1000"
GUARDED, SHIELD = MICRO.replace("--no_dcbf ", ""), "safety.pursuer."
SMOOTH = f"{MICRO} --smooth_curriculum --n_obstacles 2"
FROZEN, PARTIAL = f"{MICRO} --alternate_freeze", f"{MICRO} --partial_obs_los --n_obstacles 1"
SOLO = "--no_dcbf --full_obs --micro_phase_steps 1000"
LEVEL, REWARD, SENSING = "arena.level.", "arena.reward.", "arena.sensing."
SCHEDULE, CURRICULUM = "selfplay.schedule.", "selfplay.curriculum."
LEAGUE, HARD, EVALUATION = "selfplay.league.", "selfplay.stabilisers.", "selfplay.evaluation."
FREEZE, COLD = SCHEDULE + "alternate_freeze.", SCHEDULE + "cold_start."


def parsed(text):
    return given_flags(parser().parse_args(["amsdrl", *text.split()]))


def built(text):
    return config_of(parsed(text), {})


def leaves(config):
    values = {}
    for path, _ in fields(DuelConfig):
        value = config
        for name in path.split("."):
            value = getattr(value, name)
        values[path] = value
    return values


def counted(few, most, slots, seen):
    return {
        LEVEL + "obstacles_min": few,
        LEVEL + "obstacles_max": most,
        "arena.obstacle_slots": slots,
        "arena.observed_obstacles": seen,
    }


def changed(before, value, **more):
    return {before: value} | more


# What each flag changes: the line it is added to, the flag, and every field that is another one then.
EFFECTS = [
    (MICRO, "arena_width 14", {LEVEL + "width_m": 14.0}),
    (MICRO, "arena_height 14", {LEVEL + "height_m": 14.0}),
    (MICRO, "max_steps 600", {LEVEL + "max_steps": 600}),
    (MICRO, "capture_radius 0.4", {LEVEL + "capture_radius_m": 0.4}),
    (MICRO, "pursuer_v_max 1.2", {LEVEL + "pursuer_speed_mps": 1.2}),
    (MICRO, "evader_v_max 1.2", {LEVEL + "evader_speed_mps": 1.2}),
    (MICRO, "fixed_speed", {"arena.fixed_speed": True}),
    (MICRO, "prep_steps 50", {LEVEL + "prep_steps": 50}),
    (MICRO, "min_init_distance 2", {LEVEL + "spawn_min_m": 2.0}),
    (MICRO, "max_init_distance 10", {LEVEL + "spawn_max_m": 10.0}),
    (SMOOTH, "min_init_distance 1", {LEVEL + "spawn_min_m": 1.0}),
    (MICRO, "n_obstacles 2", counted(2, 2, 2, 2)),
    (MICRO, "n_obstacles_min 0 --n_obstacles_max 3", {p: v for p, v in counted(0, 3, 3, 3).items() if v}),
    (MICRO, "min_obstacles 2", counted(2, 2, 2, 2)),
    (SMOOTH, "min_obstacles 2", {CURRICULUM + "min_obstacles": 2}),
    (f"{MICRO} --n_obstacles 3", "n_obstacle_obs 1", {"arena.observed_obstacles": 1}),
    (PHASES.replace("--full_obs", ""), "full_obs", {COLD + "enabled": False, "run.steps": 6_000_000}),
    (f"{MICRO} --n_obstacles 1", "partial_obs_los", {SENSING + "mode": "partial"}),
    (PARTIAL, "asymmetric_obs", {SENSING + "evader_sees_all": True}),
    (PARTIAL, "sensing_radius 3", {SENSING + "radius_m": 3.0, SENSING + "line_of_sight": False}),
    (PARTIAL, "fov_angle 90", {SENSING + "cone_deg": 90.0, SENSING + "line_of_sight": False}),
    (f"{PARTIAL} --sensing_radius 3", "combined_masking", {SENSING + "line_of_sight": True}),
    (MICRO, "distance_scale 2", {REWARD + "distance_scale": 2.0}),
    (MICRO, "capture_bonus 10", {REWARD + "capture_bonus": 10.0}),
    (MICRO, "timeout_penalty -10", {REWARD + "timeout_penalty": -10.0}),
    (
        f"{MICRO} --n_obstacles 1",
        "w_occlusion 0.2",
        {REWARD + "evader_mode": "occlusion", REWARD + "hiding": 0.2},
    ),
    (
        f"{MICRO} --n_obstacles 1",
        "use_visibility_reward",
        {REWARD + "evader_mode": "visibility", REWARD + "hiding": 1.0},
    ),
    (
        f"{MICRO} --n_obstacles 1 --use_visibility_reward",
        "visibility_weight 0.1",
        {REWARD + "hiding": 0.1},
    ),
    (MICRO, "survival_bonus 0.02", {REWARD + "survival_bonus": 0.02}),
    (f"{MICRO} --n_obstacles 1", "w_obs_approach 50", {REWARD + "obstacle_approach": 50.0}),
    (f"{MICRO} --n_obstacles 1", "w_collision 0.5", {REWARD + "obstacle_contact": 0.5}),
    (MICRO, "w_wall 0.5", {REWARD + "wall_contact": 0.5}),
    (f"{MICRO} --n_obstacles 1", "w_vis_pursuer 0.1", {REWARD + "pursuer_visibility": 0.1}),
    (PARTIAL, "w_search 0.0003", {REWARD + "search": 0.0003}),
    (f"{PARTIAL} --w_search 0.0003", "t_stale 20", {REWARD + "stale_steps": 20}),
    (MICRO, "max_phases 3", {"run.steps": 3 * 500_000}),
    (PHASES, "max_phases 3", {"run.steps": 3 * 500_000, SCHEDULE + "max_phases": 3}),
    (MICRO, "timesteps_per_phase 2500", {"run.steps": 12 * 2000}),
    (
        PHASES,
        "timesteps_per_phase 1000",
        {
            "run.steps": 12_000,
            SCHEDULE + "phase_steps": 1000,
            EVALUATION + "every_steps": 1000,
            LEAGUE + "snapshot_steps": 1000,
        },
    ),
    (MICRO, "max_total_steps 10000", {"run.steps": 10_000}),
    (
        PHASES,
        "micro_phase_steps 2048",
        {
            "run.steps": 12 * (500_000 // 2048) * 2048,
            SCHEDULE + "kind": "micro",
            SCHEDULE + "micro_phase_steps": 2048,
            SCHEDULE + "max_phases": 0,
            EVALUATION + "every_steps": 50 * 2048,
            LEAGUE + "snapshot_steps": 5 * 2048,
        },
    ),
    (MICRO, "eval_interval_micro 20", {EVALUATION + "every_steps": 20_000}),
    (MICRO, "snapshot_freq_micro 10", {LEAGUE + "snapshot_steps": 10_000}),
    (
        PHASES,
        "cold_start_timesteps 100000",
        {COLD + "enabled": True, COLD + "steps": 100_000, "run.steps": 6_100_000},
    ),
    (
        PHASES,
        "phase_warmup",
        {
            SCHEDULE + "warm_up.enabled": True,
            "run.steps": 1_200_000 + 6 * 500_000,
            EVALUATION + "every_steps": 100_000,
            LEAGUE + "snapshot_steps": 100_000,
        },
    ),
    (
        f"{PHASES} --n_obstacles 1",
        "evader_multiplier 2",
        {SCHEDULE + "evader_multiplier": 2.0, "run.steps": 9_000_000},
    ),
    (MICRO, "train_ratio 2", {SCHEDULE + "train_ratio": 2}),
    (MICRO, "freeze_role pursuer", {SCHEDULE + "freeze": "pursuer"}),
    (MICRO, "alternate_freeze", {FREEZE + "enabled": True}),
    (FROZEN, "freeze_switch_threshold 0.8", {FREEZE + "threshold": 0.8}),
    (FROZEN, "freeze_switch_consecutive 2", {FREEZE + "consecutive": 2}),
    (
        FROZEN,
        "freeze_thr_schedule 0:0.8,2500000:0.75",
        {FREEZE + "threshold": 0.8, FREEZE + "schedule": ((2_500_000, 0.75),)},
    ),
    (FROZEN, "self_play_start_steps 15000000", {FREEZE + "both_from_steps": 15_000_000}),
    (FROZEN, "force_first_switch_steps 3000000", {FREEZE + "force_first_steps": 3_000_000}),
    (FROZEN, "force_switch_steps 2000000", {FREEZE + "force_steps": 2_000_000}),
    (
        MICRO,
        "adaptive_ratio_threshold 0.4",
        {SCHEDULE + "adaptive_ratio.enabled": True, SCHEDULE + "adaptive_ratio.threshold": 0.4},
    ),
    (
        f"{MICRO} --adaptive_ratio_threshold 0.3",
        "adaptive_boost_phases 10",
        {SCHEDULE + "adaptive_ratio.boost_phases": 10},
    ),
    (
        MICRO,
        "lr_dampen_threshold 0.2",
        {SCHEDULE + "dampening.enabled": True, SCHEDULE + "dampening.threshold": 0.2},
    ),
    (
        SOLO,
        "opponent_pool_size 5",
        {LEAGUE + "capacity": 5, LEAGUE + "history": 0.5, LEAGUE + "snapshot_steps": 5000},
    ),
    (f"{MICRO} --collapse_threshold 0.05", "pfsp", {HARD + "collapse.hard_opponents": True}),
    (PHASES, "bilateral_rollback", {HARD + "rollback.enabled": True}),
    (
        MICRO,
        "collapse_threshold 0.15",
        {HARD + "collapse.enabled": True, HARD + "collapse.threshold": 0.15},
    ),
    (f"{MICRO} --collapse_threshold 0.05", "collapse_streak_limit 5", {HARD + "collapse.streak": 5}),
    (SMOOTH, "ewc_lambda 500", {HARD + "ewc.enabled": True, HARD + "ewc.weight": 500.0}),
    (f"{SMOOTH} --ewc_lambda 500", "ewc_fisher_samples 512", {HARD + "ewc.samples": 512}),
    (MICRO, "rnd_coef 0.2", {HARD + "rnd.enabled": True, HARD + "rnd.weight": 0.2}),
    (f"{MICRO} --rnd_coef 0.2", "rnd_embed_dim 32", {HARD + "rnd.embedding": 32}),
    (f"{MICRO} --rnd_coef 0.2", "rnd_hidden_dim 32", {HARD + "rnd.hidden": 32}),
    (f"{MICRO} --rnd_coef 0.2", "rnd_update_freq 128", {HARD + "rnd.update_samples": 512}),
    (f"{MICRO} --n_obstacles 3", "curriculum", {CURRICULUM + "kind": "discrete"}),
    (
        MICRO,
        "curriculum",
        {CURRICULUM + "kind": "discrete"}
        | dict.fromkeys(("arena.obstacle_slots", "arena.observed_obstacles"), 3),
    ),
    (
        f"{MICRO} --n_obstacles 2",
        "smooth_curriculum",
        {CURRICULUM + "kind": "smooth", LEVEL + "spawn_min_m": 2.0, "arena.obstacle_slots": 3},
    ),
    (SMOOTH, "smooth_curriculum_increment 1", {CURRICULUM + "increment_m": 1.0}),
    (SMOOTH, "ne_gap_advancement", {CURRICULUM + "gate": "ne_gap"}),
    (f"{SMOOTH} --ne_gap_advancement", "ne_gap_threshold 0.2", {CURRICULUM + "ne_gap": 0.2}),
    (f"{SMOOTH} --ne_gap_advancement", "ne_gap_consecutive 3", {CURRICULUM + "consecutive": 3}),
    (SMOOTH, "min_phases_per_level 2", {CURRICULUM + "min_phases": 2}),
    (SMOOTH, "min_escape_rate 0.1", {CURRICULUM + "gate": "dual", CURRICULUM + "min_escape_rate": 0.1}),
    (f"{PHASES} --smooth_curriculum", "evader_first_on_advance", {CURRICULUM + "evader_first": True}),
    (SMOOTH, "warm_start_evader", {CURRICULUM + "warm_start_steps": 50_000}),
    (
        f"{SMOOTH} --warm_start_evader",
        "warm_start_timesteps 20000",
        {CURRICULUM + "warm_start_steps": 20_000},
    ),
    (SMOOTH, "mixed_level_ratio 0.2", {CURRICULUM + "mixed_levels": 0.2}),
    (GUARDED, "use_dcbf", {}),
    (GUARDED, "gamma 0.5", {SHIELD + "kappa_per_s": 10.0}),
    (
        GUARDED,
        "no_dcbf",
        {
            SHIELD + "when": "never",
            SHIELD + "kappa_per_s": 10.0,
            SHIELD + "separation_m": 0.0,
            SHIELD + "margin_m": 0.02,
        },
    ),
    (MICRO, "eta 0.2", {EVALUATION + "eta": 0.2}),
    (MICRO, "eval_episodes 100", {EVALUATION + "games": 100}),
    (MICRO, "convergence_consecutive 3", {EVALUATION + "consecutive": 3}),
    (MICRO, "learning_rate 3e-4", {"ppo.learning_rate": 3e-4}),
    (MICRO, "ent_coef 0.01", {"ppo.entropy_weight": 0.01}),
    (MICRO, "n_epochs 10", {"ppo.epochs": 10}),
    (MICRO, "n_envs 4", {"collect.worlds": 4, LEAGUE + "groups": 1, "ppo.minibatches": 4}),
    (MICRO, "n_steps 32", {"collect.horizon": 32}),
    (MICRO, "batch_size 256", {"ppo.minibatches": 12}),
]


@pytest.mark.parametrize(
    ("line", "flag", "expected"), EFFECTS, ids=[f"{f} [{n}]" for n, (_, f, _) in enumerate(EFFECTS)]
)
def test_a_flag_changes_exactly_the_fields_it_names(line, flag, expected):
    before, after = leaves(built(line)), leaves(built(f"{line} --{flag}"))
    moved = {path: value for path, value in after.items() if value != before[path]}
    expected = {path: value for path, value in expected.items() if value != before[path]}
    assert moved == expected
    assert set(moved) <= set(FLAGS[flag.split()[0]].paths)


def test_every_flag_is_tested_refused_or_belongs_to_the_host():
    tested = {word for _, flag, _ in EFFECTS for word in flag.replace("--", "").split()}
    rest = {name for name in FLAGS if name not in tested}
    refused = {name for name in rest if FLAGS[name].refused}
    assert rest - refused == {"seed", "output"}


def test_the_table_holds_the_flags_of_the_original_once():
    listed = [flag.name for flags in GROUPS.values() for flag in flags]
    assert len(listed) == len(set(listed)) == 65 + 2 + 43
    known = {path for path, _ in fields(DuelConfig)}
    assert {path for flag in FLAGS.values() for path in flag.paths} <= known


def refusal(text):
    with pytest.raises(BadInput) as caught:
        built(text)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    "flag", [f for f in FLAGS.values() if f.refused and not f.rule], ids=lambda f: f.name
)
def test_what_has_no_meaning_here_is_refused_by_name(flag):
    value = "" if flag.kind is bool else next((w for w in ("sac", "lstm") if w in str(flag.kind)), "1")
    line = refusal(f"{MICRO} --{flag.name} {value}")
    assert line == f"--{flag.name} has no meaning here: {flag.refused}"


def test_ppo_may_be_named():
    assert built(f"{MICRO} --algorithm ppo") == built(MICRO)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (f"{MICRO} --use_dcbf", ["--use_dcbf and --no_dcbf"]),
        (f"{GUARDED} --gamma 1.5", ["safety.pursuer.kappa_per_s = 30.0", "gamma", "above 1"]),
        (f"{GUARDED} --gamma 0", ["safety.pursuer.kappa_per_s = 0.0"]),
        (f"{MICRO} --gamma 0.5", ["--gamma", "not the discount", "ppo.discount"]),
        (f"{MICRO} --n_obstacles_min 1", ["--n_obstacles_min and --n_obstacles_max belong together"]),
        (f"{MICRO} --curriculum --min_obstacles 1", ["--min_obstacles has no effect with --curriculum"]),
        (f"{SMOOTH} --max_init_distance 9", ["--max_init_distance", "the curriculum decides"]),
        (f"{MICRO} --curriculum --min_init_distance 3", ["the curriculum decides"]),
        (f"{MICRO} --curriculum --smooth_curriculum", ["give one of them"]),
        (f"{MICRO} --visibility_weight 0.1", ["--visibility_weight", "--use_visibility_reward"]),
        (f"{MICRO} --use_visibility_reward --w_occlusion 0.1", ["--w_occlusion", "give one of them"]),
        (f"{MICRO} --sensing_radius 3", ["--sensing_radius", "--partial_obs_los"]),
        (f"{PARTIAL} --combined_masking", ["--combined_masking", "--sensing_radius or --fov_angle"]),
        (f"{MICRO} --warm_start_timesteps 5", ["--warm_start_timesteps", "--warm_start_evader"]),
        (f"{PHASES} --eval_interval_micro 5", ["--eval_interval_micro", "--micro_phase_steps"]),
        (f"{PHASES} --snapshot_freq_micro 5", ["--snapshot_freq_micro", "--micro_phase_steps"]),
        (f"{SOLO} --snapshot_freq_micro 5", ["--snapshot_freq_micro", "--opponent_pool_size"]),
        (f"{FROZEN} --freeze_thr_schedule 0=0.8", ["--freeze_thr_schedule", "step:threshold"]),
        (
            f"{FROZEN} --freeze_thr_schedule 0:0.8 --freeze_switch_threshold 0.7",
            ["--freeze_switch_threshold has no effect", "begins at step 0"],
        ),
        # Combinations that our config refuses; its line names the field.
        (f"{MICRO} --phase_warmup", ["warm_up has no effect with kind = micro"]),
        (f"{MICRO} --pfsp", ["hard_opponents has no effect"]),
        (f"{MICRO} --ne_gap_advancement", ["gate has no effect with kind = none"]),
        (f"{MICRO} --t_stale 9", ["stale_steps has no effect"]),
        (f"{MICRO} --ewc_lambda 9", ["ewc has no effect without a curriculum"]),
        (f"{MICRO} --arena_width -3", ["arena.level.width_m = -3.0", "allowed"]),
        (f"{MICRO} --eta nan", ["selfplay.evaluation.eta", "not a finite number"]),
        (f"{MICRO} --n_envs 0", ["collect.worlds = 0"]),
        (f"{MICRO} --batch_size 0 --n_steps 0", ["collect.horizon = 0"]),
        ("--no_dcbf --full_obs --micro_phase_steps -5", ["micro_phase_steps = -5"]),
    ],
)
def test_a_line_that_asks_for_nothing_is_refused_in_one_line(line, parts):
    text = refusal(line)
    for part in parts:
        assert part in text


# --- the two runs of the originals


@pytest.mark.parametrize(("line", "preset"), [(RA1, "ra1"), (RA2, "ra2")])
def test_a_run_of_the_originals_is_the_game_of_its_preset(line, preset):
    config, expected = built(line), from_preset(preset, [])
    assert config.arena == expected.arena
    assert config.selfplay.curriculum == expected.selfplay.curriculum
    assert config.selfplay.league.capacity == expected.selfplay.league.capacity


def test_ra1_is_the_game_of_the_appendix():
    config = built(RA1)
    level, reward = config.arena.level, config.arena.reward
    assert (level.width_m, level.height_m, level.max_steps, level.prep_steps) == (20.0, 20.0, 600, 50)
    assert (level.pursuer_speed_mps, level.evader_speed_mps, config.arena.fixed_speed) == (1.0, 1.15, True)
    assert (level.spawn_min_m, level.spawn_max_m) == (2.0, 10.0)
    assert (level.obstacles_min, level.obstacles_max, config.arena.observed_obstacles) == (2, 2, 2)
    assert (reward.capture_bonus, reward.timeout_penalty, reward.distance_scale) == (10.0, -10.0, 1.0)
    assert (reward.evader_mode, reward.hiding, reward.survival_bonus) == ("visibility", 0.1, 0.02)
    assert reward.obstacle_approach == 50.0
    assert config.selfplay.schedule.micro_phase_steps == 4096
    assert config.selfplay.evaluation.every_steps == 50 * 4096
    assert config.selfplay.league.snapshot_steps == 5 * 4096
    assert config.run.steps == 1000 * (500_000 // 4096) * 4096  # the cap of the original, without a budget


def test_ra2_begins_near_and_moves_by_the_gap():
    curriculum = built(RA2).selfplay.curriculum
    assert (curriculum.kind, curriculum.gate, curriculum.increment_m) == ("smooth", "ne_gap", 1.0)
    assert (curriculum.ne_gap, curriculum.consecutive, curriculum.min_phases) == (0.15, 3, 2)
    assert (curriculum.start_max_m, curriculum.final_max_m) == (5.0, 15.0)
    assert (curriculum.min_obstacles, curriculum.obstacles) == (2, 3)


def test_what_differs_from_the_original_is_said_only_where_it_does():
    said = "\n".join(differences(parsed(RA1), built(RA1)))
    assert "collect.worlds = 64 (original: 4)" in said
    assert "run.steps = 499,712,000" in said
    as_theirs = (
        f"{RA1} --n_envs 4 --n_steps 512 --eval_episodes 100 --max_total_steps 100000 --n_obstacle_obs 2"
    )
    said = "\n".join(differences(parsed(as_theirs), built(as_theirs)))
    for name in ("collect.", "evaluation.games", "run.steps", "observed_obstacles"):
        assert name not in said


# --- the command


def outlast(folder, *arguments):
    """Run the command line of the tree under test, with the compile cache of the tests."""
    source = Path(cli.__file__).parents[2]
    command = [sys.executable, "-m", "outlast", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("line", [RA1, pytest.param(RA2, marks=pytest.mark.slow)])  # each compiles for 30 s
def test_the_runs_of_the_originals_train_as_they_stand(tmp_path, line):
    ended = outlast(tmp_path, "amsdrl", *line.split(), "--max_total_steps", "8192")
    assert ended.returncode == 0, ended.stderr
    assert "what is not as in the original" in ended.stderr
    folder = tmp_path / line.split()[line.split().index("--output") + 1]
    assert json.loads((folder / "seeds.json").read_text()) == {"seeds": [47]}
    history = json.loads((folder / "history.json").read_text())
    assert (history["history"], history["converged"]) == ([], False)
    again = outlast(tmp_path, "amsdrl", *line.split())
    assert again.returncode == 2
    assert "exists already" in again.stderr


@pytest.mark.parametrize("short", ["--lr", "--eval_interval", "--max_total"])
def test_an_abbreviation_is_refused(tmp_path, short):
    """In the original `--lr 3e-4` set the threshold of the dampening."""
    ended = outlast(tmp_path, "amsdrl", "--no_dcbf", short, "3")
    assert ended.returncode == 2
    assert f"unrecognized arguments: {short}" in ended.stderr
    assert list(Path(tmp_path).iterdir()) == []


def test_help_lists_every_flag_in_groups_without_loading_the_trainer():
    shown = parser()._subparsers._group_actions[0].choices["amsdrl"].format_help()  # type: ignore[union-attr]
    for title, flags in GROUPS.items():
        assert f"{title}:" in shown
        for flag in flags:
            assert f"--{flag.name}" in shown
    code = "import sys; from outlast.cli import parser; parser(); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_filter_is_on_by_default_with_the_originals_rate_and_said_to_differ():
    config = built(GUARDED)
    shield = config.safety.pursuer
    assert (shield.when, shield.kappa_per_s, shield.separation_m) == ("training", 4.0, 0.35)
    assert config.safety.evader.when == "never"
    told = " ".join(differences(parsed(GUARDED), config))
    assert "--gamma 0.2" in told and "head-on" in told
    assert "gamma" not in " ".join(differences(parsed(MICRO), built(MICRO)))
