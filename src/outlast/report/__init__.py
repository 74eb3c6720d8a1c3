"""Reports: a run directory in, learning curves, a page and a document out. Never imports the trainer.

`report` is what `outlast report --json` prints, `table` what it shows in a terminal.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlast.report.document import compared, interval, number, run_document, valued
from outlast.report.read import read_run
from outlast.run import disk
from outlast.run.errors import Refused, RunProblem

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

FILES = ("curves.png", "report.html", "report.json")


def report(paths: list[Path], out: Path | None = None) -> dict[str, Any]:
    """Write the report of one run, or of several beside each other, and return it as a document.

    The files go to `out`, or to `report/` in the first run.
    """
    from outlast.report import balance, plots
    from outlast.report.page import page

    if not paths:
        raise Refused("report: name at least one run")
    records = [read_run(Path(path)) for path in paths]
    folder = Path(paths[0]) / "report" if out is None else out
    maps = balance.files(records[0]) if records[0].program == "balance" else {}
    files = [folder / name for name in (*FILES, *maps)]
    document = {"runs": [run_document(record) for record in records], "files": [str(file) for file in files]}
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    try:
        with disk.writing(f"{folder}"):
            disk.make_folder(folder)
            html = page(records, document, plots.svg(records))
            contents = (plots.png(records), html.encode(), text.encode(), *maps.values())
            for file, data in zip(files, contents, strict=True):
                disk.write_atomic(file, data)
    except OSError as error:
        raise RunProblem(f"cannot write {folder}: {error.strerror}") from None
    return document


def table(document: dict[str, Any]) -> "Group":
    """Lay the document out for a terminal: the criteria, then every quantity of every run."""
    from rich.console import Group
    from rich.text import Text

    shown = []
    for run in document["runs"]:
        title = f"{run['run']}: {run['program']}, {len(run['seeds'])} seeds, {run['steps']:,} steps each"
        shown += [Text(title, style="bold"), _criteria(run["criteria"])]
    return Group(*shown, _quantities(document))


def _criteria(lines: list[dict[str, Any]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    rows = Table("criterion", "target", "mean", "95 % interval", "")
    for line in lines:
        verdict = Text("pass", style="green") if line["pass"] else Text("FAIL", style="bold red")
        cells = (line["name"], line["target"], number(line["value"]["mean"]), interval(line["value"]))
        rows.add_row(*(Text(cell) for cell in cells), verdict)
    return rows


def _quantities(document: dict[str, Any]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    rows = Table("quantity")
    for run in document["runs"]:
        rows.add_column(Text(Path(run["run"]).name))
    for name, values in compared(document):
        rows.add_row(Text(name), *(Text(valued(value)) for value in values))
    return rows
