"""The reason of an import that fails in a user's files is told with its line; nobody installs what is their own."""

from pathlib import Path

import pytest

from tests.cli.program import Warm, assert_one_error_line

_AGENT = """
from journeyman import Agent
from journeyman.testing.scripted import ScriptedModel
agent = Agent(name="clerk", model=ScriptedModel(["ok"]))
"""
_INSTALL = "-m pip install"
FILES = {
    "shop/__init__.py": "",
    "shop/clerk.py": f"import stripez\n{_AGENT}",
    "shop/deep.py": "from shop import names\nfrom shop import clerk\n",
    "shop/names.py": "NAME = 1\n",
    "shop/misspelt.py": "import shop.namez\n",
    "shop/lacks.py": "from shop.names import NAMES\n",
    "shop/ring.py": "from shop.round import b\na = 1\n",
    "shop/round.py": "from shop.ring import a\nb = 1\n",
    "shop/relative.py": "from .nowhere import x\n",
    "shop/older.py": "import asyncio.streamz\n",
    "shop/odd.py": "raise ImportError('libthing.so: cannot open')\n",
    "parts/lazy/__init__.py": "def __getattr__(name):\n    import stripez\n",
    "acme/names.py": "NAME = 'clerk'\n",
    "acme/tools/clerk.py": f"from acme.names import NAME\n{_AGENT}",
    "src/inner/part.py": "",
    "outside.py": "import inner.part\n",
    "libraries/inner-two/setup.py": "",
    "outside_two.py": "import inner_two\n",
    "lone.py": f"import helpers_of_mine\n{_AGENT}",
    "scripts/helpers_of_mine.py": "",
    "labels.py": "",
    "shaded.py": "import labels.nodes\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("imports")
    for name, text in FILES.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


@pytest.mark.parametrize("words", ["run {} hi", "check {}", "serve {}", "worker {}", "mcp {}"])
@pytest.mark.parametrize("target", ["shop.clerk:agent", "shop/clerk.py:agent"])
def test_every_command_names_the_package_that_is_missing_and_who_imports_it(
    folder: Path, warm: Warm, words: str, target: str
) -> None:
    done = warm(*words.format(target).split(), cwd=folder)
    assert_one_error_line(done, 2, ["shop/clerk.py, line 1 imports stripez, which is not installed."])


REASONS: dict[str, list[str]] = {
    "shop.deep:agent": ["shop/clerk.py, line 1 imports stripez, which is not installed.", _INSTALL],
    "shop.misspelt:agent": ["shop/misspelt.py, line 1 imports shop.namez, which shop", "Did you mean shop.names?"],
    "shop.lacks:agent": ["shop/lacks.py, line 1 raises ImportError: cannot import name 'NAMES' from 'shop.names'"],
    "shop.ring:agent": ["shop/round.py, line 1 raises ImportError: cannot import name 'a' from partially initialized"],
    "shop.relative:agent": ["shop/relative.py, line 1 imports shop.nowhere, which shop does not have."],
    "shop.older:agent": ["shop/older.py, line 1 imports asyncio.streamz, which asyncio does not have."],
    "shop.odd:agent": ["shop/odd.py, line 1 raises ImportError: libthing.so: cannot open."],
    "shop.clerc:agent": ["There is no module shop.clerc. Did you mean shop.clerk?"],
    "shop.names.NAME:agent": ["There is no module shop.names.NAME. shop.names is a file, not a package: shop/names.py"],
    "parts.lazy:agent": ["parts/lazy/__init__.py, line 2 imports stripez, which is not installed."],
    "shaded.py:agent": ["shaded.py, line 1 imports labels.nodes. labels is a file, not a package: labels.py"],
}


@pytest.mark.parametrize("target", REASONS)
def test_the_reason_is_told_with_the_line_of_the_file_that_holds_it(folder: Path, warm: Warm, target: str) -> None:
    assert_one_error_line(warm("check", target, cwd=folder), 2, REASONS[target])


OWN: dict[str, str] = {
    "acme/tools/clerk.py:agent": "Name it as a module: acme.tools.clerk:agent",
    "outside.py:agent": "inner is yours: src/inner. Set PYTHONPATH=src",
    "outside_two.py:agent": "inner_two is yours: libraries/inner-two.",
    "lone.py:agent": "helpers_of_mine is yours: scripts/helpers_of_mine.py. Set PYTHONPATH=scripts",
}


@pytest.mark.parametrize("target", OWN)
def test_nobody_is_told_to_install_what_is_their_own(folder: Path, warm: Warm, target: str) -> None:
    done = warm("check", target, cwd=folder)
    assert_one_error_line(done, 2, ["which Python does not find.", OWN[target]])
    assert "pip" not in done.stderr


def test_a_folder_above_the_current_one_is_ones_own_too(folder: Path, warm: Warm) -> None:
    done = warm("check", "clerk.py:agent", cwd=folder / "acme" / "tools")
    assert_one_error_line(done, 2, [f"acme is yours: {folder / 'acme'}. Set PYTHONPATH={folder}"])
    assert "pip" not in done.stderr
