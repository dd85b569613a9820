"""How results are shown: a table for people, a document for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import orjson

from benchmarks.measuring import Row

_TITLES = ("benchmark", "unit", "journeyman", "reference", "its cost", "ratio", "quartiles", "target", "turns")


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load average {load}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def header() -> str:
    """Return the line above the table."""
    return ", ".join(machine().values())


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    cells = [_TITLES, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_TITLES))]
    lines = [_line(line, widths) for line in cells]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def document(rows: Sequence[Row]) -> bytes:
    """Return the rows and the machine as JSON."""
    return orjson.dumps({**machine(), "rows": [asdict(row) for row in rows]}, option=orjson.OPT_INDENT_2)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _cells(row: Row) -> tuple[str, ...]:
    spread = "" if row.ratio_low is None or row.ratio_high is None else f"{row.ratio_low:.2f} to {row.ratio_high:.2f}"
    return (
        row.what,
        row.unit,
        _figure(row.ours),
        row.reference,
        _figure(row.theirs),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        spread,
        row.target,
        str(row.turns),
    )


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
