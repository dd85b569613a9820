"""The commands of the page that leads from one file to three workers on Postgres do what it says."""

import json
import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from signal import SIGTERM

from tests.cli.program import Warm, running
from tests.support import pages

_PAGE = pages.ROOT / "docs" / "postgres.md"
_URL = "postgresql://ann@db.example/orders"


def test_the_commands_of_the_page_lead_to_three_workers(warm: Warm, tmp_path: Path, emptied: str) -> None:
    (tmp_path / "agents.py").write_text(next(pages.python_blocks(_PAGE)), "utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", _PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    env = dict[str, str]()
    with ExitStack() as stack:
        workers = []
        for program, *words in commands:
            if program == "export":
                name, _, value = words[0].partition("=")
                assert value == _URL
                env[name] = emptied
            elif words[0] == "worker":
                workers = [
                    stack.enter_context(running(*words, cwd=tmp_path, env=env, start=warm.start)) for _ in range(3)
                ]
                for each in workers:
                    each.wait_for("Serving clerk from ")
            elif program == "journeyman":
                done = warm(*words, cwd=tmp_path, env=env)
                assert done.code == 0, done.stderr
        shown = json.loads(warm("show", "monday", "--json", cwd=tmp_path, env=env).stdout)
        for _ in range(200):
            if shown["is_over"]:
                break
            shown = json.loads(warm("show", "monday", "--json", cwd=tmp_path, env=env).stdout)
        for each in workers:
            each.send(SIGTERM)
        assert [each.done().code for each in workers] == [0] * 3
    assert shown["status"] == "done"
