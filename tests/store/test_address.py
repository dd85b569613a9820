"""What a store may be: one rule wherever one is named, and no password in what is said or made."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from journeyman import Agent, Chat
from journeyman.durable import Durable
from journeyman.errors import StoreError
from journeyman.record import Recorder, Recordings
from journeyman.store import Store
from journeyman.store.address import read_address
from journeyman.store.database import without_password
from journeyman.testing.scripted import ScriptedModel
from journeyman.view import create_viewer
from tests.cli.program import Warm, assert_one_error_line

URL = "postgresql://ann:hunter2@127.0.0.1:1/orders"

REFUSED = {
    f'"{URL}"': "begins or ends with a quote",
    f"'{URL}'": "begins or ends with a quote",
    f"{URL}\n": "begins or ends with a blank",
    f" {URL}": "begins or ends with a blank",
    "host=127.0.0.1 user=ann password=hunter2 dbname=orders": "is in the form host=… dbname=…",
    "dbname = orders password = hunter2": "is in the form host=… dbname=…",
    "postgresql+psycopg://ann:hunter2@h/d": "no kind 'postgresql+psycopg'",
    "POSTGRESQL://ann:hunter2@h/d": "no kind 'POSTGRESQL'",
    "jdbc:postgresql://h/d?password=hunter2": "no kind 'jdbc'",
    "ann:hunter2@h/d": "no kind 'ann'",
    "postgresql:orders": "behind postgresql: there is no //",
    "sqlite:///runs.db": "a file is named without //",
    "sqlite:": "it is not a path",
    "${DATABASE_URL}": "the name of a variable",
    "$DATABASE_URL": "the name of a variable",
    "DATABASE_URL=postgresql://ann:hunter2@h/d": "no URL of a database that is known",
    "": "it is not a path",
    "runs\0.db": "it is not a path",
}


async def _chat(place: str) -> None:
    async with Chat.open(Agent(name="bot", model=ScriptedModel("ok")), place):
        pass


async def _opened(open_store: Callable[[str], object], place: str) -> None:
    open_store(place)


async def _durable(place: str) -> None:
    async with Durable(place):
        pass


OPENING: dict[str, Callable[[str], Awaitable[None]]] = {
    "Durable": _durable,
    "Recorder": lambda place: _opened(Recorder, place),
    "Recordings": lambda place: _opened(Recordings, place),
    "Store": lambda place: _opened(Store, place),
    "Chat.open": _chat,
    "the viewer": lambda place: _opened(create_viewer, place),
}


@pytest.mark.share(one_in=5)
@pytest.mark.parametrize("kind", OPENING)
@pytest.mark.parametrize("given", REFUSED)
async def test_what_is_no_address_is_refused_everywhere_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((StoreError, ValueError)) as caught:
        await OPENING[kind](given)
    assert REFUSED[given] in str(caught.value)
    assert "Give a path, sqlite:PATH, or postgresql://…" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


UNREACHABLE = (
    *("postgresql://ann:hunter2@127.0.0.1:1/orders", "postgresql://ann@127.0.0.1:1/orders?password=hunter2"),
    *("postgresql://ann:hunter2 x@127.0.0.1:1/orders", "postgresql://ann:hunter2@127.0.0.1:1/orders?odd=1"),
    *("postgresql://ann:hunter2@127.0.0.1:1/orders?direct=here", "postgresql://ann:hunter2@[::1/orders"),
    *("postgresql://ann:hunter2%zz@127.0.0.1:1/orders", "postgresql://ann:x@hunter2@127.0.0.1:1/orders"),
    "postgresql://ann:hunter2@:x/orders",
)


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("kind", ["Durable", "Recorder", "Recordings", "Chat.open"])
@pytest.mark.parametrize("given", UNREACHABLE)
async def test_a_database_that_cannot_be_had_is_one_line_without_its_password(given: str, kind: str) -> None:
    with pytest.raises((StoreError, ValueError)) as caught:
        await OPENING[kind](given)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (URL, URL),
        ("postgres://h/d", "postgres://h/d"),
        ("runs.db", Path("runs.db")),
        ("sqlite:runs.db", Path("runs.db")),
        ("/var/lib/runs of today.db", Path("/var/lib/runs of today.db")),
        ("C:\\runs.db", Path("C:\\runs.db")),
        (Path('"quoted"'), Path('"quoted"')),
        (Path("notes:today.db"), Path("notes:today.db")),
    ],
)
def test_an_address_is_a_url_or_a_path(given: str | Path, read: str | Path) -> None:
    assert read_address(given) == read


def test_a_url_that_was_made_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="a URL that was made a Path") as caught:
        read_address(Path(URL))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("secret", ["hunter2", "p/w@x", "a@b", "%40"])
def test_no_password_of_a_url_is_shown(secret: str) -> None:
    assert without_password(f"postgresql://ann:{secret}@h/d") == "postgresql://ann:…@h/d"
    assert secret not in without_password(f"postgresql://h/d?sslpassword={secret}&port=1")


@pytest.mark.parametrize("kind", ["text", "folder", "mode", "database"])
def test_serve_says_why_a_store_cannot_be_opened(warm: Warm, tmp_path: Path, kind: str) -> None:
    (tmp_path / "agents.py").write_text(
        "from journeyman import Agent\nfrom journeyman.testing.scripted import ScriptedModel\n"
        "scout = Agent(name='scout', model=ScriptedModel('ok'))\n"
    )
    store = tmp_path / "runs.db"
    if kind == "folder":
        store.mkdir()
    elif kind != "database":
        store.write_text("This is no database. " * 20)
        store.chmod(0o660 if kind == "mode" else 0o600)
    named = URL if kind == "database" else "runs.db"
    done = warm("serve", "agents.py:scout", "--port", "0", "--store", named, cwd=tmp_path)
    assert_one_error_line(done, 2, ["orders" if kind == "database" else "runs.db"])
    assert "hunter2" not in done.error
