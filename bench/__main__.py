"""Run the benchmarks: `python -m bench --out docs/results`. Each answer is a JSON file in `benchmarks/` there, and
`benchmarks.md` is made from all of those files, so one benchmark can be run again alone with `--only`.
"""

import argparse
import dataclasses
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.measure import Answer, machine

FIRST = ("world", "train", "sb3", "startup", "checkpoint", "memory")


def names() -> tuple[str, ...]:
    """List the benchmarks: every module here that gives an answer."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    found = {path.stem for path in files if "\ndef answer(*, quick: bool)" in path.read_text()}
    return (*(name for name in FIRST if name in found), *sorted(found - set(FIRST)))


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for and write the page; missed targets are written down, they are no failure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=Path("docs/results"), metavar="DIR")
    parser.add_argument("--only", action="append", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: few, short windows; judges nothing"
    )
    given = parser.parse_args(arguments)
    kept = given.out / "benchmarks"
    kept.mkdir(parents=True, exist_ok=True)
    for name in given.only or names():
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        facts, begin = machine(), time.monotonic()
        answer = importlib.import_module(f"bench.{name}").answer(quick=given.quick)
        found = document(name, answer, facts, time.monotonic() - begin, quick=given.quick)
        (kept / f"{name}.json").write_text(written(found))
        for line in verdicts(found):
            print(f"bench: {line}", file=sys.stderr, flush=True)
    files = [kept / f"{name}.json" for name in names()]
    page = benchmarks_page([json.loads(path.read_text()) for path in files if path.exists()])
    (given.out / "benchmarks.md").write_text(page)
    print(given.out / "benchmarks.md")
    return 0


def document(
    name: str, answer: Answer, facts: dict[str, Any], seconds: float, *, quick: bool
) -> dict[str, Any]:
    """Return everything about one benchmark, as it is kept."""
    return {
        "name": name,
        "quick": quick,
        "seconds": round(seconds),
        "machine": facts,
        **dataclasses.asdict(answer),
    }


def written(found: dict[str, Any]) -> str:
    """Write a document as JSON with one part a line: raw measurements are many."""
    parts = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in found.items()]
    return "{" + ",\n ".join(parts) + "}\n"


def verdicts(found: dict[str, Any]) -> list[str]:
    """Say of each target what was measured and whether that is enough."""
    return [" | ".join(cells) for cells in (_criterion(c) for c in found["criteria"])]


def _criterion(criterion: dict[str, Any]) -> list[str]:
    value = "-" if criterion["value"] is None else f"{criterion['value']:,.3g}"
    if criterion["value"] is not None and abs(criterion["value"]) >= 1000:
        value = f"{criterion['value']:,.0f}"
    verdict = {True: "met", False: "**missed**", None: "not judged"}[criterion["passed"]]
    return [criterion["name"], criterion["target"], value, verdict]


def benchmarks_page(documents: list[dict[str, Any]]) -> str:
    """Write the page: targets first, then every answer with its tables."""
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`; the measurements are in [benchmarks](benchmarks).",
        "",
    ]
    lines += [
        "Contenders of one table run by turns, in the same rounds: their ratios hold, absolute figures belong to"
    ]
    lines += ["the machine. Figures are medians, in brackets the least and the greatest round.", ""]
    lines += _table(
        ["what", "target", "measured", ""], [_criterion(c) for d in documents for c in d["criteria"]]
    )
    for found in documents:
        lines += [f"## {found['name']}", "", found["question"], ""]
        for table in found["tables"]:
            lines += [f"**{table['title']}**", "", *_table(table["columns"], table["rows"])]
            lines += [table["note"], ""] if table["note"] else []
        for note in found["notes"]:
            lines += [note, ""]
        lines += [_circumstances(found), ""]
    return "\n".join(lines)


def _circumstances(found: dict[str, Any]) -> str:
    facts = found["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    quick = " A smoke test, too short to judge." if found["quick"] else ""
    # The load is what others made of the machine: it is read before anything of ours runs.
    busy = facts["load_before"] > 1.5 * facts["cores"]
    quick += " Other work kept the machine busy: rates are too low, times too long." if busy else ""
    return (
        f"*{facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']}, "
        f"Python {facts['python']}, {packages}; load before {facts['load_before']}; took {found['seconds']} s.{quick}*"
    )


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    cells = [columns, ["---"] * len(columns), *rows]
    return [*(f"| {' | '.join(map(str, row))} |" for row in cells), ""]


if __name__ == "__main__":
    raise SystemExit(main())
