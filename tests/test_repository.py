"""The rules for the files around the package: what they may not say, and that they agree with one another."""

import os
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
HOME = re.compile(r"github(?:usercontent)?\.com/[\w.-]+/journeyman\b|[\w-]+\.github\.io/journeyman\b")
"""Where this project is, or will be, at home; pyproject.toml has the one setting."""
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


def programs_within(text: str, lines: int) -> list[str]:
    """Return the programs of a page whose last line is among the first `lines` of the page."""
    beginning = "\n".join([*text.splitlines()[:lines], "```"])
    return re.findall(r"^```python\n(.+?)^```$", beginning, flags=re.MULTILINE | re.DOTALL)


def test_the_readme_shows_a_whole_program_that_needs_no_key_and_rejects_before_line_forty_five() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first, *_ = programs_within(readme, 44)
    assert [part for part in ("ScriptedModel(", "validators=", "print(") if part not in first] == []


def test_a_program_that_ends_later_is_found() -> None:
    late = "\n" * 30 + "```python\n" + "a = 1\n" * 20 + "print(a)\n```\n"
    assert "print(" not in "".join(programs_within(late, 44))


def test_the_readme_begins_with_the_two_commands_of_a_checkout() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first_block = re.findall(r"^```\w+\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL)[0]
    assert re.findall(r"^make (\w+)", first_block, flags=re.MULTILINE) == ["demo", "test"]


def test_one_setting_names_the_home_of_the_project_and_no_other_file_does() -> None:
    assert "address" in project()["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    assert [each for each in offences(HOME) if not each.startswith("pyproject.toml:")] == []


@pytest.mark.parametrize("place", ["github.com/a/NAME/blob/main/a.md", "a-b.github.io/NAME/", "github.com/a-b/NAME"])
def test_a_planted_address_of_the_home_is_found(place: str) -> None:
    assert HOME.search("[words](https://" + place.replace("NAME", "journey" + "man") + ")")


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


def test_the_citation_names_this_version_and_this_licence() -> None:
    cited: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    metadata = project()["project"]
    assert (cited["version"], cited["license"]) == (metadata["version"], metadata["license"])
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()


def test_the_forms_for_reports_are_whole_and_a_vulnerability_is_reported_in_private() -> None:
    assert "**Report a vulnerability**" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    forms = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in ISSUES.glob("*.yml")}
    assert forms.pop("config.yml") == {"blank_issues_enabled": False}
    assert all({"name", "description", "body"} <= form.keys() for form in forms.values())
    fields = [field for form in forms.values() for field in form["body"]]
    assert all(field["attributes"]["label"] and field["id"] for field in fields)


SANDBOXES = "sudo apt-get install --yes bubblewrap && sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"


def test_ci_has_a_job_for_each_step_of_the_gate_on_each_python_and_on_macos() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    run = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert run == {
        "check": ["make check", "make site"],
        "test": [SANDBOXES, "make demo", "make test", "make test ARGS=tests/loop"],
        "browser": ["make browser"],
    }
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert [each["system"] for each in matrix["include"]] == ["macos-latest"]


def test_a_release_is_refused_unless_the_package_names_its_home() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    (command,) = [run for step in jobs["build"]["steps"] if "address" in (run := step.get("run", ""))]
    for home, is_refused in {"https://a.example/b/c": False, "": True, "https://a.example/b/d": True}.items():
        settings = f'address = "{home}"\n'
        told = {"GITHUB_SERVER_URL": "https://a.example", "GITHUB_REPOSITORY": "b/c", "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["sh", "-c", command.replace("pyproject.toml", "-")], input=settings, env=told, text=True, check=False
        )
        assert (done.returncode != 0) == is_refused


def test_dependabot_looks_after_every_folder_with_packages_of_others() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))["updates"]
    watched = {each["package-ecosystem"]: each.get("directories", [each.get("directory")]) for each in updates}
    listing = ["git", "ls-files", "*package.json"]
    found = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {f"/{Path(name).parent.as_posix()}" for name in found} == {*watched.pop("npm")}
    assert watched == {"github-actions": ["/"], "pip": ["/"]}


@pytest.mark.parametrize("package", ["mcp", "pgqueuer", "procrastinate", "uvicorn"])
def test_a_package_whose_insides_we_use_has_an_upper_bound(package: str) -> None:
    metadata = project()
    extras: dict[str, list[str]] = metadata["project"]["optional-dependencies"]
    every = [*metadata["dependency-groups"]["dev"], *(each for extra in extras.values() for each in extra)]
    found = [each for each in every if re.match(rf"{package}\b(?!-)", each)]
    assert found
    assert [each for each in found if "<" not in each] == []


def unquoted_folders(makefile: str) -> list[str]:
    """Return the commands in which the folder of the checkout is a word of its own, which a blank in it would part."""
    commands = [line for line in makefile.splitlines() if line.startswith("\t")]
    places = (r"\$\(CURDIR\)", r"\$\$PWD", r"\$\$\{PWD\}")
    return [line for line in commands if re.search("|".join(places), re.sub(r'"[^"]*"', "", line))]


def test_make_works_in_a_folder_with_a_blank() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert unquoted_folders(makefile) == []
    assert unquoted_folders(makefile.replace('PYTHONPATH="$(CURDIR)/$(LOCAL)"', "PYTHONPATH=$(CURDIR)/$(LOCAL)"))
