"""Programs that were frozen or copied: without metadata, without some modules, or in a zip."""

import os
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import journeyman

PACKAGE = Path(journeyman.__file__).parent
ROOT = Path(__file__).parent.parent

WITHOUT = """
import sys
from importlib.metadata import PackageNotFoundError
import importlib.metadata

class Without:
    def find_spec(self, name, path, target=None):
        if name.startswith("journeyman.models.openai"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def version(name):
    raise PackageNotFoundError(name)

sys.meta_path.insert(0, Without())
importlib.metadata.version = version
from journeyman.connect import connect
from journeyman.errors import ModelUnavailable
from journeyman.machine.version import package_version
try:
    connect("vllm:m", base_url="http://127.0.0.1:1/v1")
except ModelUnavailable as error:
    print(error, error.hint)
print(package_version())
"""


def test_a_program_without_a_module_and_the_metadata_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    told, version = done.stdout.splitlines()
    assert "needs the module journeyman.models.openai, which is missing in this installation" in told
    assert "--collect-all journeyman" in told
    assert version == "unknown"


def test_the_hook_for_pyinstaller_names_every_module_and_all_data() -> None:
    (point,) = [each for each in entry_points(group="pyinstaller40") if each.value.startswith("journeyman.")]
    (folder,) = point.load()()
    hook = runpy.run_path(str(Path(folder) / "hook-journeyman.py"))
    assert {"journeyman.models.openai.chat", "journeyman.cli.chat.command", "journeyman"} <= {*hook["hiddenimports"]}
    assert all(name.replace(".", "").isidentifier() for name in hook["hiddenimports"])
    placed = {f"{folder}/{Path(file).name}" for file, folder in hook["datas"]}
    assert {"journeyman/models/prices.json", "journeyman/view/static/app.js"} <= placed
    assert any(name.endswith(".dist-info/METADATA") for name in placed)


FROM_A_ZIP = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from journeyman import __file__, cli
assert ".zip" in __file__
cli.main()
"""


def test_the_demo_runs_from_a_zip(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(PACKAGE, tmp_path / "all" / "journeyman", ignore=ignored)
    shutil.copytree(ROOT / "examples" / "analyst", tmp_path / "all" / "journeyman" / "_demo", ignore=ignored)
    shutil.make_archive(str(tmp_path / "journeyman"), "zip", tmp_path / "all")
    command = [sys.executable, "-c", FROM_A_ZIP, str(tmp_path / "journeyman.zip"), "demo", "--quiet"]
    env = {**os.environ, "JOURNEYMAN_RECORD": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert (done.returncode, '"caveats"' in done.stdout) == (0, True), done.stderr
