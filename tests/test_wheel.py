"""What ships: the wheel, built and installed offline, works without the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command away from the source tree; return what it printed."""
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder with the wheel installed into it, without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = (sys.executable, "-m", "uv", "--offline", "--no-cache", "--quiet")
    build = ("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, ROOT)
    run(*uv, *build, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    target = folder / "installed"
    run(*uv, "pip", "install", "--no-deps", "--python", sys.executable, "--target", target, wheel, cwd=folder)
    return target


def test_the_wheel_holds_the_package_its_type_marker_and_its_licence_only(installed: Path) -> None:
    (metadata,) = installed.glob("journeyman-*.dist-info")
    assert (installed / "journeyman" / "py.typed").is_file()
    assert (metadata / "licenses" / "LICENSE").is_file()
    folders = {path.name for path in installed.iterdir() if path.is_dir()}
    assert folders == {"journeyman", metadata.name, "bin"}


def test_the_installed_package_imports_without_the_source_tree(installed: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(installed)!r}); import journeyman; print(journeyman.__file__)"
    origin = run(sys.executable, "-I", "-c", program, cwd=installed)
    assert Path(origin.strip()) == installed / "journeyman" / "__init__.py"


def test_the_installed_command_shows_its_help(installed: Path) -> None:
    help_text = run(installed / "bin" / "journeyman", "--help", cwd=installed, PYTHONPATH=str(installed))
    assert "journeyman" in help_text
