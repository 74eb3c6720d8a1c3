"""The command line. Only argparse is imported here, so that `--help` answers at once; jax comes with the work.

Exit codes: 0 done, 2 bad input, 3 damaged or refused run, 130 interrupted after saving.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outlast import __version__
from outlast.cli import flags

DONE, BAD_INPUT, REFUSED, INTERRUPTED = 0, 2, 3, 130
STUDIES = ("calibration", "headline", "ra", "residents", "safety")


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line."""

    def error(self, message: str) -> None:
        """Say what is wrong and leave with the code for bad input."""
        self.exit(BAD_INPUT, f"outlast: {message}; see `{self.prog} --help`\n")


def parser() -> Parser:
    """Describe every command and flag."""
    root = Parser(prog="outlast", description=__doc__.splitlines()[0] if __doc__ else "", allow_abbrev=False)
    root.description = "Train agents that have to last, in runs that outlast the machine."
    root.add_argument("--version", action="version", version=f"outlast {__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    _train(commands.add_parser("train", help="start a run from a preset", allow_abbrev=False))
    _amsdrl(
        commands.add_parser("amsdrl", help="start a run by the original's command line", allow_abbrev=False)
    )
    _resume(
        commands.add_parser("resume", help="go on with a run, to the identical result", allow_abbrev=False)
    )
    balance = commands.add_parser(
        "balance", help="map where a game is even: a grid of games in one program", allow_abbrev=False
    )
    balance.add_argument("--x", metavar="FIELD=V,V,...", help="columns (default speed_ratio=0.9,...,1.3)")
    balance.add_argument("--y", metavar="FIELD=V,V,...", help="rows (default size_m=8,10,12,14)")
    _run_flags(balance, "runs/balance")
    evaluate = commands.add_parser("evaluate", help="measure what a run has learned", allow_abbrev=False)
    evaluate.add_argument("run", type=Path, nargs="+", metavar="RUN", help="more than one: safety only")
    evaluate.add_argument("--suite", required=True, metavar="NAME", help="which measurement, such as panel")
    evaluate.add_argument(
        "--games", type=int, default=1000, metavar="N", help="games a pairing (default 1000)"
    )
    evaluate.add_argument(
        "--against", type=Path, metavar="RUN", help="safety: also meet the learned opponent of this run"
    )
    evaluate.add_argument("--steps", type=int, metavar="N", help="exploit: steps a response (default 1M)")
    evaluate.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    report = commands.add_parser("report", help="write curves, tables and a page", allow_abbrev=False)
    report.add_argument("run", type=Path, nargs="+", metavar="RUN")
    report.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: RUN/report)")
    report.add_argument(
        "--sqlite",
        nargs="?",
        const="",
        metavar="FILE",
        help="also a database of lives (default: DIR/run.sqlite)",
    )
    report.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    verify = commands.add_parser("verify", help="check every checkpoint of a run", allow_abbrev=False)
    verify.add_argument("run", type=Path, metavar="RUN")
    verify.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    presets = commands.add_parser(
        "presets", help="list presets and packs, or show one in full", allow_abbrev=False
    )
    presets.add_argument("name", nargs="?", metavar="NAME")
    study = commands.add_parser("study", help="regenerate a page of docs/results", allow_abbrev=False)
    study.add_argument("name", choices=STUDIES, metavar="NAME", help=", ".join(STUDIES))
    study.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ROW",
        help="headline, ra: this row only; may be repeated",
    )
    study.add_argument("--games", type=int, default=1000, metavar="N", help="games a cell (default 1000)")
    study.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds of each variant (default 5)")
    study.add_argument("--steps", type=int, default=2_000_000, metavar="N", help="steps a seed (default 2M)")
    study.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="where the runs are kept"
    )
    study.add_argument("--out", type=Path, default=Path("docs/results"), metavar="DIR")
    return root


def _train(command: argparse.ArgumentParser) -> None:
    command.add_argument("preset", metavar="PRESET", help="see `outlast presets`")
    _run_flags(command, "runs/PRESET")


def _run_flags(command: argparse.ArgumentParser, folder: str) -> None:
    command.add_argument("--out", type=Path, metavar="DIR", help=f"run directory (default: {folder})")
    command.add_argument("--seeds", type=int, default=1, metavar="N", help="train N seeds in one program")
    command.add_argument("--seed", type=int, default=0, metavar="K", help="the first seed (default 0)")
    command.add_argument("--steps", type=int, metavar="N", help="world steps per seed")
    _run_options(command)


def _run_options(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--workers", type=int, default=1, metavar="W", help="spread the seeds over W processes"
    )
    command.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="change one field; may be repeated"
    )
    command.add_argument("--quiet", action="store_true", help="no progress display")


def _amsdrl(command: argparse.ArgumentParser) -> None:
    command.description = "Every flag says which fields it decides (`outlast presets ra1` explains them)."
    command.usage = "%(prog)s FLAGS"
    ours = command.add_argument_group("beside the original's flags")
    ours.add_argument("--seeds", type=int, default=1, metavar="N", help="train N seeds, from --seed on")
    _run_options(ours)
    flags.add_flags(command)


def _resume(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument("--steps", type=int, metavar="N", help="new budget: world steps per seed, in all")
    command.add_argument("--fresh", action="store_true", help="begin again when no checkpoint is left")
    command.add_argument(
        "--allow-different", action="store_true", help="go on with another identity; marks the run for ever"
    )
    command.add_argument("--quiet", action="store_true", help="no progress display")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = parser().parse_args(arguments)
    from outlast.config import BadInput
    from outlast.run.errors import RunProblem

    try:
        from outlast.cli import commands

        return getattr(commands, given.command)(given)
    except BadInput as problem:
        print(f"outlast: {problem}", file=sys.stderr)
        return BAD_INPUT
    except RunProblem as problem:
        print(f"outlast: {problem}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        return DONE
    except OSError as problem:
        print(f"outlast: {problem.filename or 'a file'}: {problem.strerror or problem}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("outlast: interrupted", file=sys.stderr)
        return INTERRUPTED
