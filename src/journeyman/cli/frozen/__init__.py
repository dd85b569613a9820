"""A hook for PyInstaller, which sees no module that is imported by a name in a text; `pyproject.toml` names it."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """Return where the hooks are, as PyInstaller asks for it."""
    return [str(Path(__file__).parent)]
