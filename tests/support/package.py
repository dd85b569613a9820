"""Build what is published and use it as a stranger would: `make package`.

The wheel and the source distribution are checked as the package index will check them, then each is installed into an
empty environment of every Python that is there, and has to import all public modules and to run the demo.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support import pages

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BUILT = pages.ROOT / "dist"
WORK = pages.ROOT / ".cache" / "package"
UV = (sys.executable, "-m", "uv", "--quiet")
PROGRAM = """
import importlib, pathlib, pkgutil, journeyman
assert pathlib.Path(journeyman.__file__).is_relative_to(pathlib.Path("environment").resolve()), journeyman.__file__
for name in journeyman.__all__:
    getattr(journeyman, name)
with_extras = {"_demo", "cli", "mcp", "pytest_plugin", "serve", "skills", "view", "__main__"}
for module in pkgutil.iter_modules(journeyman.__path__):
    room = None if module.name in with_extras else importlib.import_module("journeyman." + module.name)
    if module.name not in {"durable", "otel", "store"}:
        [getattr(room, name) for name in getattr(room, "__all__", ())]
"""
"""What a program can do without any extra: import every module, and all names of the rooms that need none."""


def run(*command: str | Path, cwd: Path = WORK) -> str:
    """Run a command outside the checkout, without what leads back into it."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "ANTHROPIC_API_KEY"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> list[Path]:
    """Return the wheel and the source distribution, new and checked."""
    shutil.rmtree(BUILT, ignore_errors=True)
    run(*UV, "build", "--no-build-isolation", "--python", sys.executable, "--out-dir", BUILT, pages.ROOT)
    files = sorted([*BUILT.glob("*.whl"), *BUILT.glob("*.tar.gz")])
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    return files


def pythons() -> Iterator[tuple[str, str | None]]:
    """Yield each version that we promise, with the program that is there for it, if one is and starts."""
    for version in PYTHONS:
        program = shutil.which(f"python{version}")
        starts = program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0
        yield version, program if starts else None


def use(file: Path, python: str) -> None:
    """Install a file into an empty environment, with what it needs and nothing else, and run the demo there."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    run(*UV, "venv", "--python", python, "environment")
    run(*UV, "pip", "install", "--python", "environment", f"journeyman @ {file.as_uri()}")
    run(WORK / "environment" / "bin" / "python", "-W", "error", "-c", PROGRAM)
    run(WORK / "environment" / "bin" / "journeyman", "demo", "--no-record")


def main() -> int:
    """Try the versions that are named, all of which have to be there; or those that are there."""
    WORK.mkdir(parents=True, exist_ok=True)
    files = build()
    named = sys.argv[1:]
    there = {version: python for version, python in pythons() if not named or version in named}
    for version, python in there.items():
        for file in files if python else ():
            use(file, str(python))
            sys.stdout.write(f"{version}: {file.name} installs, imports and runs the demo\n")
        if python is None:
            sys.stdout.write(f"{version}: not tried, for there is no python{version}\n")
    return 0 if any(there.values()) and (not named or all(there.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
