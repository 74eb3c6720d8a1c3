"""Pieces of a page. Everything that was not made here, names, comments and numbers of any file, passes through `text`;
table cells are HTML that was made here.
"""

import json
from html import escape
from typing import Any

from outlast.report.document import valued


def text(value: Any) -> str:
    """Escape anything that did not come from this file."""
    return escape(value if isinstance(value, str) else json.dumps(value), quote=True)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write a table of cells that are already HTML."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def verdict(passed: bool) -> str:
    """Write pass or fail so that it does not rest on colour."""
    return '<span class="pass">✓ pass</span>' if passed else '<span class="fail">✗ fail</span>'


def bar(quantity: dict[str, Any], bounds: tuple[float, float], shade: str) -> str:
    """Draw a mean as a bar with its interval and one dot per seed."""
    low, high = bounds

    def at(value: float) -> float:
        return round(100 * (value - low) / ((high - low) or 1), 2)

    mean, (left, right) = quantity["mean"], quantity["ci95"]
    parts = ['<rect class="track" x="0" y="6" width="100%" height="6" rx="3"/>']
    if mean is not None:
        start, end = sorted((at(0.0), at(mean)))
        parts.append(
            f'<rect class="mean" x="{start}%" y="3" width="{end - start:.2f}%" height="12" fill="{shade}"/>'
        )
    if left is not None:
        parts.append(
            f'<line class="whisker" x1="{at(left)}%" x2="{at(right)}%" y1="9" y2="9" stroke="{shade}"/>'
        )
    dots = [value for value in quantity["per_seed"] if value is not None]
    parts += [f'<circle class="seed" cx="{at(value)}%" cy="9" r="2.2"/>' for value in dots]
    return f'<svg class="bar" role="img" aria-label="{valued(quantity)}">{"".join(parts)}</svg>'
