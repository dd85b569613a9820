"""The rules for the files around the package: what they may not say, and that they agree with one another."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def test_the_readme_links_by_whole_addresses_so_that_they_work_wherever_it_is_shown() -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [target for target in targets if not target.startswith("https://")] == []


def test_the_contributors_guide_fits_a_screen() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 100


def test_workflow_actions_are_pinned_by_commit() -> None:
    workflows = [path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")]
    used = [action for text in workflows for action in re.findall(r"uses: *(\S+)", text)]
    assert [action for action in used if not re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", action)] == []


ISSUES = ROOT / ".github/ISSUE_TEMPLATE"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_only_and_runs_targets_that_exist(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        commands = [step.get("run", "") for step in job["steps"]]
        assert {name for command in commands for name in re.findall(r"^make (\w+)", command)} - targets == set()
        assert job["timeout-minutes"] <= 30


def test_only_what_publishes_has_an_identity_and_it_runs_nothing_of_the_repository() -> None:
    publishing: list[str] = []
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            if "id-token" in job.get("permissions", {}):
                publishing.append(f"{path.stem}.{name}")
                assert not any("run" in step or "checkout" in step["uses"] for step in job["steps"])
    assert publishing == ["release.publish", "site.deploy"]


def test_the_citation_names_this_version_and_these_addresses() -> None:
    cited: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    metadata = project()["project"]
    assert (cited["version"], cited["license"]) == (metadata["version"], metadata["license"])
    assert (cited["url"], cited["repository-code"]) == (metadata["urls"]["Documentation"], metadata["urls"]["Source"])
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()


def test_what_is_reported_goes_to_this_repository() -> None:
    source = project()["project"]["urls"]["Source"]
    report = f"{source}/security/advisories/new"
    assert report in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    forms = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in ISSUES.glob("*.yml")}
    assert report in [each["url"] for each in forms.pop("config.yml")["contact_links"]]
    assert all({"name", "description", "body"} <= form.keys() for form in forms.values())
    fields = [field for form in forms.values() for field in form["body"]]
    assert all(field["attributes"]["label"] and field["id"] for field in fields)
