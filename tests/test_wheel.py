"""What ships: wheel and source distribution, built offline; the wheel works without the source tree.

`make package` installs both into empty environments, with what they need from the package index.
"""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hatch_build import CustomMetadataHook

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command away from the source tree; return what it printed."""
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


UV = (sys.executable, "-m", "uv", "--offline", "--no-cache", "--quiet")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder with what is published: a wheel and a source distribution."""
    folder = tmp_path_factory.mktemp("built")
    build = ("build", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, ROOT)
    run(*UV, *build, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """The folder into which the wheel is installed, without its dependencies."""
    (wheel,) = built.glob("*.whl")
    target = built / "installed"
    run(*UV, "pip", "install", "--no-deps", "--python", sys.executable, "--target", target, wheel, cwd=built)
    return target


def test_the_wheel_holds_the_package_its_type_marker_and_its_licence_only(installed: Path) -> None:
    (metadata,) = installed.glob("journeyman-*.dist-info")
    assert (installed / "journeyman" / "py.typed").is_file()
    assert (metadata / "licenses" / "LICENSE").is_file()
    folders = {path.name for path in installed.iterdir() if path.is_dir()}
    assert folders == {"journeyman", metadata.name, "bin"}


def test_the_wheel_holds_the_viewers_page_the_demo_and_no_tests(installed: Path) -> None:
    package = installed / "journeyman"
    static = package / "view" / "static"
    shown = re.findall(r"(?:src|href)=\"\.?/?([\w./-]+)\"", (static / "index.html").read_text(encoding="utf-8"))
    assert [name for name in shown if not (static / name.removeprefix("static/")).is_file()] == []
    assert any(name.endswith(".js") for name in shown)
    assert [*(package / "_demo").glob("data/*.csv*")]
    assert [path for path in package.rglob("*test*") if path.name not in ("pytest_plugin.py", "testing")] == []
    ours = {path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file()}
    theirs = {path.relative_to(installed) for path in package.rglob("*")}
    assert {path for path in ours if "__pycache__" not in path.parts} - theirs == set()


def test_the_installed_demo_runs_without_the_source_tree(installed: Path, tmp_path: Path) -> None:
    demo = run(
        installed / "bin" / "journeyman", "demo", "--no-record", "--json", cwd=tmp_path, PYTHONPATH=str(installed)
    )
    assert '"code":"SUCCESS"' in demo


def test_the_source_distribution_builds_what_the_repository_tests(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "hatch_build.py",
        "tests/conftest.py",
        "docs/index.md",
    }
    assert wanted - names == set()
    assert {name for name in names if name.startswith((".github", ".ci", ".tools", ".cache", "viewer/"))} == set()


def test_the_package_index_will_show_the_readme_of_both(built: Path) -> None:
    files = sorted([*built.glob("*.whl"), *built.glob("*.tar.gz")])
    checked = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files, cwd=built)
    assert checked.count("PASSED") == len(files) == 2


LINKS = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")


def dangling(text: str) -> list[str]:
    """Return the links of a page that lead nowhere when it is shown without the files beside it."""
    return [target for _, target in LINKS.findall(text) if not target.startswith(("https://", "#"))]


def test_the_readme_of_both_has_no_link_that_leads_nowhere(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        told = [archive.read(name).decode()]
    with tarfile.open(source) as archive:
        (name,) = [name for name in archive.getnames() if name.endswith("/PKG-INFO")]
        member = archive.extractfile(name)
        assert member is not None
        told.append(member.read().decode())
    for text in told:
        assert "make demo" in text
        assert dangling(text) == []
    assert dangling((ROOT / "README.md").read_text(encoding="utf-8")) != [], "in the repository they lead to files"


def metadata_of(address: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    CustomMetadataHook(str(ROOT), {"address": address}).update(metadata)
    return metadata


def test_every_address_of_the_package_is_made_of_one_setting() -> None:
    home = "https://github.com/someone/somewhere"
    metadata = metadata_of(home)
    text = metadata["readme"]["text"]
    assert f"[18 codes]({home}/blob/main/docs/endings.md)" in text
    assert (
        f"![A draft that a validator rejected, beside the one before it, in the viewer]({home}/raw/main/docs/" in text
    )
    assert dangling(text) == []
    addresses = {home, f"{home}/blob/main/CHANGELOG.md", f"{home}/issues", "https://someone.github.io/somewhere/"}
    assert {*metadata["urls"].values()} == addresses


def test_a_project_without_a_home_names_no_address() -> None:
    metadata = metadata_of("")
    assert metadata["urls"] == {}
    assert "one of 18 codes that say why" in " ".join(metadata["readme"]["text"].split())
    assert LINKS.findall(metadata["readme"]["text"]) == []


def test_the_extra_all_has_every_extra_but_local_models_and_the_keyring() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    (everything,) = extras["all"]
    assert {*re.findall(r"[\w-]+", everything)} - {"journeyman"} == {*extras} - {"all", "keyring", "local"}


def test_the_installed_package_imports_without_the_source_tree(installed: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(installed)!r}); import journeyman; print(journeyman.__file__)"
    origin = run(sys.executable, "-I", "-c", program, cwd=installed)
    assert Path(origin.strip()) == installed / "journeyman" / "__init__.py"


def test_the_installed_command_shows_its_help(installed: Path) -> None:
    help_text = run(installed / "bin" / "journeyman", "--help", cwd=installed, PYTHONPATH=str(installed))
    assert "journeyman" in help_text
