"""The plugin for pytest: the fixtures `cassette` and `scripted`, the option `--journeyman-record`, and the mark `live`.

No test asks a provider, unless it has the mark, records a cassette, or `JOURNEYMAN_MODEL_CALLS=1` is set.

A test that uses neither pays for nothing: the modules behind a fixture are imported when the fixture is first used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypedDict

import pytest

if TYPE_CHECKING:
    from journeyman.models.cassette.cassette import Cassette, CassetteMode
    from journeyman.models.transport import Silence
    from journeyman.testing.scripted import Answer, Policy, ScriptedModel
    from journeyman.tools.redaction import Secret
    from journeyman.types import Price

_MODES: Final = ("none", "once", "new", "all")
_MODEL_CALLS: Final = "JOURNEYMAN_MODEL_CALLS"
_FALSE: Final = ("", "0", "false", "no")
_UNSAFE: Final = re.compile(r"[^\w.-]+")
_LONGEST_NAME: Final = 120
_OFFLINE: Final = "the test replays a cassette. Give the run the cassette's model: Runtime(model=cassette.model(…))"


class CassetteOptions(TypedDict, total=False):
    """The arguments of `Cassette` that the fixture `cassette_options` may return."""

    redact: Sequence[Secret]
    redact_known: bool
    tools: Literal["replay", "run"]


class MakeScripted(Protocol):
    """A function that makes models as `ScriptedModel` does: the value of the fixture `scripted`."""

    def __call__(
        self, answers: Sequence[Answer | Policy], *, name: str = ..., repeat: bool = ..., price: Price | None = ...
    ) -> ScriptedModel: ...


class _Used:
    """The cassette and the scripts that a test has used, checked when the test has ended."""

    def __init__(self) -> None:
        self.cassette: Cassette | None = None
        self.silence: Silence | None = None
        self.scripts: list[ScriptedModel] = []

    def faults(self) -> list[str]:
        """Say what was wrong, whatever the test itself says."""
        found = [str(miss) for miss in self.cassette.misses] if self.cassette is not None else []
        if self.silence is not None and self.silence.refused:
            hosts = ", ".join(sorted(set(self.silence.refused)))
            found.append(f"A connection to {hosts} would have been opened, although {_OFFLINE}.")
        return found

    def unspoken(self) -> list[str]:
        """Say which scripts were not used up."""
        left = [script.remaining for script in self.scripts if script.remaining]
        return [f"A script was not used up: it has {n} {'answer' if n == 1 else 'answers'} left." for n in left]


_USED: Final = pytest.StashKey[_Used]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--journeyman-record`."""
    parser.getgroup("journeyman", "cassettes of model traffic").addoption(
        "--journeyman-record",
        choices=_MODES,
        default=None,
        help="what the fixture `cassette` records: nothing, what has no file yet, what is new, or all "
        "(default: none where the environment variable CI is set, else once)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark `live`."""
    config.addinivalue_line("markers", "live: may ask real models, which costs money")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no test ask a provider that is not marked, neither in this process nor in one that it starts."""
    if _MODEL_CALLS in os.environ or item.get_closest_marker("live") is not None:
        return (yield)
    os.environ[_MODEL_CALLS] = "0"
    try:
        return (yield)
    finally:
        os.environ.pop(_MODEL_CALLS, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test whose cassette lacks something, and say what it lacks, however the test itself ends."""
    used = item.stash.get(_USED, None)
    if used is None:
        return (yield)
    try:
        result = yield
    except Exception as error:
        faults = used.faults()
        if not faults:
            raise
        faults += _own_words(error, faults)
    else:
        faults = used.faults() or used.unspoken()
        if not faults:
            return result
    pytest.fail("\n\n".join(faults), pytrace=False)  # outside of `except`, or the whole chain would be shown


def _own_words(error: Exception, faults: Sequence[str]) -> list[str]:
    """Return what the test failed with, unless the faults say it."""
    words = str(error)
    is_said = any(fault.splitlines()[0] in words for fault in faults)
    return [] if is_said else [f"The test then failed with {type(error).__name__}: {words}".rstrip(": ")]


@pytest.fixture
def cassette_options() -> CassetteOptions:
    """Return more arguments for `Cassette`. Override it in a `conftest.py`, for example to redact more."""
    return {}


@pytest.fixture
def cassette(request: pytest.FixtureRequest, cassette_options: CassetteOptions) -> Iterator[Cassette]:
    """Record the test's conversation, or replay it, from `cassettes/<module>/<test>.jsonl` beside the test.

    While it replays, no connection is opened over this package's transport.
    """
    make: type[Cassette] = resolve_name("journeyman.models.cassette.cassette:Cassette")
    refusal: type[Exception] = resolve_name("journeyman.errors:CassetteError")
    with ExitStack() as ended:
        try:
            made = ended.enter_context(make(_cassette_path(request), _mode(request.config), **cassette_options))
        except refusal as error:
            pytest.fail(str(error), pytrace=False)
        used = _record_of(request)
        used.cassette = made
        if made.is_replaying:
            offline = resolve_name("journeyman.models.transport:offline")
            used.silence = ended.enter_context(offline(_OFFLINE))
        elif os.environ.get(_MODEL_CALLS) == "0":
            ended.enter_context(pytest.MonkeyPatch.context()).delenv(_MODEL_CALLS)
        yield made


@pytest.fixture
def scripted(request: pytest.FixtureRequest) -> MakeScripted:
    """Return a function that makes a `ScriptedModel` model; a passing test must have used all its answers."""
    make: type[ScriptedModel] = resolve_name("journeyman.testing.scripted:ScriptedModel")
    used = _record_of(request)

    def make_scripted(answers: Sequence[Answer | Policy], **options: Any) -> ScriptedModel:
        script = make(answers, **options)
        used.scripts.append(script)
        return script

    return make_scripted


def _record_of(request: pytest.FixtureRequest) -> _Used:
    node: pytest.Item = request.node  # of a fixture for one test
    return node.stash.setdefault(_USED, _Used())


def _mode(config: pytest.Config) -> CassetteMode:
    asked: CassetteMode | None = config.getoption("--journeyman-record")
    if asked is not None:
        return asked
    return "once" if os.environ.get("CI", "").strip().lower() in _FALSE else "none"


def _cassette_path(request: pytest.FixtureRequest) -> Path:
    """Return the file for a test: its class, its name and its parameters, in a folder for its module."""
    node: pytest.Item = request.node
    name = ".".join(filter(None, node.nodeid.split("::")[1:]))
    plain = name.removesuffix("]").replace("[", "-", 1)
    # A name that every file system takes; where something had to be changed, a hash keeps it apart.
    safe = _UNSAFE.sub("_", plain)[:_LONGEST_NAME]
    file_name = safe if safe == plain else f"{safe}-{sha256(name.encode()).hexdigest()[:8]}"
    return request.path.parent / "cassettes" / request.path.stem / f"{file_name}.jsonl"
