"""The rules for the files around the package: what they may not say, and that they agree with one another."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MACHINE_PATH = re.compile(r"(?<![\w.~$}-])/(?:work|root|tmp)/")
PACKAGE_HOST = re.compile(r"(?:pypi|pythonhosted|npmjs|yarnpkg|anaconda|debian)\.(?:org|com)\b")


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Name and read each text file that is, or with the next `git add` would be, in the repository."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in done.stdout.split("\0"):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b"\0"
        if b"\0" not in content:
            yield name, content.decode("utf-8", errors="replace")


def offences(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_no_file_names_a_path_of_someones_machine() -> None:
    assert offences(MACHINE_PATH) == []


def test_a_planted_path_or_host_is_found() -> None:
    assert MACHINE_PATH.search("cache = '" + "/".join(["", "tmp", "cache'"]))
    assert not MACHINE_PATH.search("see docs/work/plan.md and ~/tmp/")
    assert PACKAGE_HOST.search("https://" + ".".join(["files", "pythonhosted", "org"]))


def test_no_file_says_where_packages_come_from() -> None:
    assert offences(PACKAGE_HOST) == []


def test_the_lock_has_every_dependency_with_a_hash_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9-]+)==\S+(?: ;[^\\]+)? \\\n    --hash=sha256:", lock, flags=re.MULTILINE))
    wanted = [*project()["project"]["dependencies"], *project()["dependency-groups"]["dev"]]
    names = {re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    assert names - pinned == set(), "Run make lock."
    assert "://" not in lock


def test_the_changelog_starts_with_the_version_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, flags=re.MULTILINE)[0] == project()["project"]["version"]


def test_the_readme_shows_a_program_before_line_thirty() -> None:
    assert "```python" in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:29]


def test_the_contributors_guide_fits_a_screen() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 100


def test_workflow_actions_are_pinned_by_commit() -> None:
    workflows = [path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")]
    used = [action for text in workflows for action in re.findall(r"uses: *(\S+)", text)]
    assert [action for action in used if not re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", action)] == []
