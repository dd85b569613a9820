"""The page that shows what there is to play with: its ten tests run, and neither it nor the folder grows."""

import ast
from pathlib import Path

from tests import play
from tests.play import door as door
from tests.play import recorder as recorder
from tests.play import stage as stage

HERE = Path(__file__).parent
PAGE = (HERE / "README.md").read_text(encoding="utf-8")
BEFORE, TESTS = PAGE.split("```python\n")
exec(compile("\n" * (BEFORE.count("\n") + 1) + TESTS.removesuffix("```\n"), HERE / "README.md", "exec"))


def test_a_newcomer_reads_a_page_of_ten_tests() -> None:
    made = [node for node in ast.parse(TESTS.removesuffix("```\n")).body if isinstance(node, ast.AsyncFunctionDef)]
    assert (len(made), PAGE.count("\n") <= 60) == (10, True)


def test_there_are_few_names_to_learn_and_few_lines_behind_them() -> None:
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in HERE.iterdir() if path.is_file())
    assert len(play.__all__) <= 40
    assert lines <= 900, lines
