"""The pages that set programs beside those of others: the lines of ours are counted as the page says."""

import re

from tests.support.pages import ROOT

PAGES = [ROOT / "docs" / f"side-by-side{part}.md" for part in ("", "-toolsets", "-outputs")]
PROGRAM = re.compile(r"^### (.+?)$.*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.+?) \| (\d+) \| (\d+|-) \|$", re.MULTILINE)


def n_lines(program: str) -> int:
    lines = [line.strip() for line in program.splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def test_the_lines_of_every_program_are_counted_right() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    counted = {title: n_lines(code) for text in texts for title, code in PROGRAM.findall(text)}
    *rows, (_, ours, theirs) = ROW.findall(texts[0])
    assert {title: int(n) for title, n, _ in rows} == counted
    both = [(int(n), int(other)) for _, n, other in rows if other != "-"]
    assert (int(ours), int(theirs)) == (sum(n for n, _ in both), sum(other for _, other in both))
    assert len(counted) >= 18
