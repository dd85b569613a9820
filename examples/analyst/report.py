"""The report: what it holds, how its author is shown the draft, and how every number in it is checked.

`preview` is the reflection. `checks` gives the validators: they believe nothing, run each finding's SQL again, count
each share again, and reject with the number that the data gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import isclose
from typing import TypeAlias

from pydantic import BaseModel, Field

from journeyman import Rejected

from .tables import QueryError, Table, quoted


class Finding(BaseModel):
    """One number, where it comes from, and what it says."""

    title: str = Field(description="What was measured, in a few words.")
    sql: str = Field(description="The SELECT that gives the number: one row with one column. It is run again.")
    value: float = Field(description="The number, with two decimals at least.", allow_inf_nan=False)
    unit: str = Field(description="What the number counts or measures, for example rows, %, knots.")
    sentence: str = Field(description="What it means, in one sentence that states the number.")


class Share(BaseModel):
    """One value of the column, and how many rows have it."""

    name: str | None = Field(description="The value; null for empty cells.")
    count: int = Field(description="How many rows have it.", ge=1)
    share: float = Field(description="100 * count / all rows, with one decimal at least.", ge=0, le=100)


class Breakdown(BaseModel):
    """All rows of the table, divided by one column."""

    column: str = Field(description="The column, as the table spells it.")
    rows: list[Share] = Field(description="The most frequent values first.", min_length=1, max_length=30)
    other: int = Field(description="How many rows have none of the listed values.", ge=0)


class Report(BaseModel):
    """The answer to a question about a table."""

    headline: str = Field(description="The answer in one line that states one of the findings' numbers.")
    table: str = Field(description="The name of the table.")
    rows_examined: int = Field(description="How many rows the table has.")
    findings: list[Finding] = Field(min_length=1, max_length=8)
    breakdown: Breakdown
    caveats: list[str] = Field(description="What a careful reader should know about these numbers.")


def preview(report: Report) -> str:
    """Render the draft as its readers will see it."""
    title = f"{report.headline}\nTable {report.table}, rows examined: {report.rows_examined:,}"
    caveats = "\n".join(f"Caveat: {caveat}" for caveat in report.caveats)
    return f"{title}\n\n{_findings(report)}\n\n{_breakdown(report)}\n\n{caveats}".rstrip()


def _findings(report: Report) -> str:
    lines = [(_cut(finding.title), f"{finding.value:,.15g}") for finding in report.findings]
    left, right = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "\n".join(
        f"  {title:<{left}}  {number:>{right}} {finding.unit}".rstrip() + f"\n      {finding.sentence}"
        for (title, number), finding in zip(lines, report.findings, strict=True)
    )


def _breakdown(report: Report) -> str:
    listed = [("(empty)" if row.name is None else _cut(row.name), row.count) for row in report.breakdown.rows]
    total = sum(count for _, count in listed) + report.breakdown.other
    lines = [*listed, ("(other)", report.breakdown.other), ("total", total)]
    width = max(len(name) for name, _ in lines)
    n_rows = max(report.rows_examined, 1)
    shown = [f"  {name:<{width}} {count:>9,} {count / n_rows:>7.1%} {_bar(count / n_rows)}" for name, count in lines]
    missing = report.rows_examined - total
    warning = f"\n  WARNING: rows {'missing' if missing > 0 else 'too many'}: {abs(missing):,}" if missing else ""
    return "\n".join([f"Rows by {report.breakdown.column}", *(line.rstrip() for line in shown)]) + warning


def _cut(text: str) -> str:
    return text if len(text) <= 36 else f"{text[:35]}…"


def _bar(share: float) -> str:
    return "#" * round(20 * min(share, 1))


Fault: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where in the report something is wrong, and what."""


def checks(table: Table) -> list[Callable[[Report], None]]:
    """Return the validators of a report on this table, in the order in which they run."""

    def findings_match_the_data(report: Report) -> None:
        """Runs each finding's SQL again and compares."""
        _reject(fault for n, finding in enumerate(report.findings) for fault in _finding_faults(table, n, finding))

    def breakdown_adds_up(report: Report) -> None:
        """Counts the rows of each share again; all of them must make the whole table."""
        _reject([*_table_faults(table, report), *_share_faults(table, report)])

    def headline_states_a_finding(report: Report) -> None:
        """The headline must rest on a number that was checked."""
        values = [finding.value for finding in report.findings]
        if not any(_states(report.headline, value) for value in values):
            numbers = ", ".join(f"{value:,.15g}" for value in values)
            _reject([(("headline",), f"it states none of the findings' numbers ({numbers})")])

    return [findings_match_the_data, breakdown_adds_up, headline_states_a_finding]


def _reject(faults: Iterable[Fault]) -> None:
    """Raise every fault at once, so that one repair can fix them all."""
    rejections = [Rejected(f"{text}.", path=path) for path, text in faults]
    if len(rejections) > 1:
        raise ExceptionGroup("several faults", rejections)
    if rejections:
        raise rejections[0]


def _finding_faults(table: Table, number: int, finding: Finding) -> Iterator[Fault]:
    path = ("findings", number)
    try:
        truth = table.number(finding.sql)
    except QueryError as error:
        yield (*path, "sql"), str(error).rstrip(".")
        return
    if table.name not in finding.sql.lower():
        yield (*path, "sql"), f"it does not read the table {quoted(table.name)}"
    elif not _matches(finding.value, truth):
        yield (*path, "value"), f"it says {finding.value:,.15g}, the data says {truth:,.15g} ({finding.sql})"
    elif not _states(finding.sentence, finding.value):
        yield (*path, "sentence"), f"it does not state the finding's number, {finding.value:,.15g}"


def _table_faults(table: Table, report: Report) -> Iterator[Fault]:
    if report.table != table.name:
        yield ("table",), f"it says {report.table!r}, the table is {table.name!r}"
    if report.rows_examined != table.n_rows:
        yield ("rows_examined",), f"it says {report.rows_examined:,}, the table has {table.n_rows:,} rows"


def _share_faults(table: Table, report: Report) -> Iterator[Fault]:
    breakdown = report.breakdown
    if breakdown.column not in table.kinds:
        yield ("breakdown", "column"), f"the columns are {', '.join(map(quoted, table.kinds))}"
        return
    seen: set[str | None] = set()
    for number, row in enumerate(breakdown.rows):
        path = ("breakdown", "rows", number)
        count = table.count(breakdown.column, row.name)
        share = 100 * count / table.n_rows
        if row.name in seen:
            yield (*path, "name"), f"{row.name!r} is listed twice"
        if row.count != count:
            yield (*path, "count"), f"it says {row.count:,} for {row.name!r}, the data says {count:,}"
        elif abs(row.share - share) > 0.050001:
            yield (*path, "share"), f"it says {row.share:g} % for {row.name!r}, it is {share:.2f} %"
        seen.add(row.name)
    total = sum(row.count for row in breakdown.rows) + breakdown.other
    if total != table.n_rows:
        yield ("breakdown", "other"), f"listed and other rows are {total:,} together, the table has {table.n_rows:,}"


def _matches(claimed: float, truth: float) -> bool:
    """Say whether this is the number, or the number rounded to two decimals; a tiny one must not round to nothing."""
    off = abs(claimed - truth)
    return isclose(claimed, truth, rel_tol=1e-12) or (off < 0.005001 and off < abs(truth) / 20)


def _states(text: str, value: float) -> bool:
    """Say whether a text holds this number, rounded as the text likes."""
    numbers = (found.replace(",", "") for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text))
    return any(isclose(float(number), round(abs(value), len(number.partition(".")[2]))) for number in numbers)
