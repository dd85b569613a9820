"""Lists for PyInstaller: every module of the package, its data, and the metadata that tells its version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_OTHERS = {"frozen", "_demo", "pytest_plugin"}

hiddenimports = [
    ".".join(("journeyman", *path.relative_to(_PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(_PACKAGE.rglob("*.py"))
    if not _OTHERS & {*path.relative_to(_PACKAGE).with_suffix("").parts}
]
excludedimports = ["pytest"]
datas = [
    (str(path), str(Path("journeyman") / path.parent.relative_to(_PACKAGE)))
    for path in sorted(_PACKAGE.rglob("*"))
    if path.is_file() and (path.suffix not in (".py", ".pyc") or "_demo" in path.parts)
]
try:
    _of_metadata = [file for file in files("journeyman") or () if file.parent.name.endswith(".dist-info")]
except PackageNotFoundError:
    _of_metadata = []
datas += [(str(file.locate()), file.parent.name) for file in _of_metadata]
