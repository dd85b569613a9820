"""What the offline stand-in looks at in a table, and the report it makes of what it has learned.

A plan follows from the description of the table and the question alone. The report follows from the plan and the
queries answered so far: a number whose own query is not answered yet is a guess, and some guesses are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .report import Breakdown, Finding, Report, Share
from .tables import Cell, ColumnSummary, Description, Rows, quoted

Known = Mapping[str, Rows]
"""The queries answered so far, by their SQL."""

TOP = 5
"""How many values of the category are listed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask of a table."""

    table: Description
    category: ColumnSummary
    """The column that divides the rows."""
    measures: list[ColumnSummary]
    """The columns to average, at most two."""
    asks_for_largest: bool
    """Whether the question asks for the largest values too."""

    def overview(self) -> list[str]:
        """Return the queries to start with."""
        return [self._top(), *(self._total(measure) for measure in self.measures)]

    def proofs(self, known: Known) -> list[str]:
        """Return the queries that give each finding its number."""
        return [finding.sql for finding in self.report(known, complete=True, proven=True).findings]

    def report(self, known: Known, *, complete: bool, proven: bool) -> Report:
        """Write the report: with the rows of no listed value if `complete`, with exact averages if `proven`."""
        n_rows = self.table.rows
        shares = [
            Share(name=None if name is None else str(name), count=int(count), share=round(100 * int(count) / n_rows, 2))
            for name, count in self._rows(known, self._top())
            if count is not None
        ]
        findings, averages = [self._share_of(shares[0], known)], ""
        for measure in self.measures:
            for average in self._average_of(measure, known):
                findings.append(average)
                averages += f"; average {measure.name}: {_words(average.value, average.unit)}"
            if self.asks_for_largest:
                findings += self._largest_of(measure, known)
        lead = f"{_shown(shares[0])} leads with {findings[0].value:g} %"
        return Report(
            headline=f"{self.category.name}: {lead} of all rows ({n_rows:,}){averages}",
            table=self.table.table,
            rows_examined=n_rows,
            findings=findings,
            breakdown=Breakdown(
                column=self.category.name,
                rows=shares,
                other=n_rows - sum(share.count for share in shares) if complete else 0,
            ),
            caveats=[self._gap(column) for column in self.measures if column.empty and proven]
            + ["Written without a language model: columns were chosen by the question's words and by counting."],
        )

    def can_report(self, known: Known) -> bool:
        """Say whether the rows could be divided, without which there is no report."""
        return bool(self._rows(known, self._top()))

    def _top(self) -> str:
        column = self._as_text()
        return f"SELECT {column} AS name, COUNT(*) AS n FROM {self._from} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {TOP}"

    def _total(self, measure: ColumnSummary) -> str:
        column = quoted(measure.name)
        return f"SELECT TOTAL({column}) AS total, COUNT(*) AS n, MAX({column}) AS largest FROM {self._from}"

    def _share_of(self, share: Share, known: Known) -> Finding:
        name = "NULL" if share.name is None else "'" + share.name.replace("'", "''") + "'"
        sql = f"SELECT 100.0 * SUM({self._as_text()} IS {name}) / COUNT(*) FROM {self._from}"
        proven = self._proven(known, sql)
        value = _rounded(round(share.share) if proven is None else proven)  # the guess is rounded too far
        return Finding(
            title=f"Share of {_shown(share)}",
            sql=sql,
            value=value,
            unit="%",
            sentence=f"{_words(value, '%')} of the rows have {_shown(share)} as {self.category.name}.",
        )

    def _average_of(self, measure: ColumnSummary, known: Known) -> Iterator[Finding]:
        match self._rows(known, self._total(measure)):
            case [[int() | float() as total, int() as n, _]]:
                sql, unit = f"SELECT AVG({quoted(measure.name)}) FROM {self._from}", _unit(measure.name)
                proven = self._proven(known, sql)
                value = _rounded(total / n if proven is None else proven)  # the guess counts empty cells as zero
                sentence = f"On average, {measure.name} is {_words(value, unit)}."
                yield Finding(title=f"Average {measure.name}", sql=sql, value=value, unit=unit, sentence=sentence)
            case _:
                return  # the query failed: nothing to say

    def _largest_of(self, measure: ColumnSummary, known: Known) -> Iterator[Finding]:
        match self._rows(known, self._total(measure)):
            case [[_, _, int() | float() as largest]]:
                sql, unit = f"SELECT MAX({quoted(measure.name)}) FROM {self._from}", _unit(measure.name)
                value = _rounded(largest)
                sentence = f"No {measure.name} is above {_words(value, unit)}."
                yield Finding(title=f"Largest {measure.name}", sql=sql, value=value, unit=unit, sentence=sentence)
            case _:
                return

    def _proven(self, known: Known, sql: str) -> float | None:
        match self._rows(known, sql):
            case [[int() | float() as value]]:
                return value
            case _:
                return None

    def _rows(self, known: Known, sql: str) -> list[list[Cell]]:
        return known[sql].rows if sql in known else []

    def _gap(self, column: ColumnSummary) -> str:
        return f"{column.name} is empty in {column.empty:,} of {self.table.rows:,} rows; its average leaves them out."

    def _as_text(self) -> str:
        column = quoted(self.category.name)
        return f"CAST({column} AS TEXT)" if self.category.kind in ("integer", "number") else column

    @property
    def _from(self) -> str:
        return quoted(self.table.table)


def choose(table: Description, question: str) -> Plan:
    """Choose the columns that the question mentions, else those that look worth it."""
    words = set(_keywords(question))

    def mentions(column: ColumnSummary) -> int:
        return len(words.intersection(_keywords(column.name)))

    def divides(column: ColumnSummary) -> tuple[bool, bool, bool, int, int]:
        is_short = all(len(str(value)) <= 60 for value in column.frequent)
        return is_short, 2 <= column.distinct <= 50, column.kind == "text", mentions(column), -column.distinct

    category = max(table.columns, key=divides)
    measurable = [column for column in table.columns if column is not category and _is_measure(column, table.rows)]
    measures = sorted(measurable, key=lambda column: (mentions(column), column.distinct), reverse=True)
    return Plan(table, category, measures[:2], not words.isdisjoint(("largest", "highest", "biggest", "maximum")))


def _is_measure(column: ColumnSummary, n_rows: int) -> bool:
    """Say whether an average of the column would mean something: it would not of numbers that only count the rows."""
    if column.kind not in ("integer", "number") or not column.distinct or "id" in column.name.lower().split():
        return False
    match column.smallest, column.largest:
        case int() as smallest, int() as largest:
            return not 1 < n_rows == column.distinct == largest - smallest + 1
        case _:
            return True


def _shown(share: Share) -> str:
    return "empty" if share.name is None else share.name


def _keywords(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if len(word) > 3]


def _unit(name: str) -> str:
    """Find the unit in a column's name: "Speed in knots", "Mass (g)", "Cost $"."""
    found = re.search(r"\bin (\w+)$|[(\[](.+?)[)\]]|([$€£%])", name)
    return next(filter(None, found.groups()), "") if found else ""


def _rounded(value: float) -> float:
    return round(float(value), 2) if abs(value) >= 1 else float(value)


def _words(value: float, unit: str) -> str:
    number = f"{value:,.10f}".rstrip("0").rstrip(".")
    return f"{number} {unit}".rstrip()
