"""Where servers are: in code, and in a file; no secret is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman import DefinitionError
from journeyman.mcp import Http, Stdio, load_servers
from journeyman.mcp.servers import scrubbed, to_servers

GIVEN = {"HOME": "/home/ada", "GITHUB_TOKEN": "hunter2hunter2", "PORT": "8080"}


def written(tmp_path: Path, servers: object) -> Path:
    file = tmp_path / "mcp.json"
    file.write_text(servers if isinstance(servers, str) else json.dumps(servers))
    return file


def faults(tmp_path: Path, servers: object) -> str:
    with pytest.raises(DefinitionError) as caught:
        load_servers(written(tmp_path, servers), environ=GIVEN)
    return str(caught.value)


def test_a_server_is_the_words_of_a_command_or_an_address() -> None:
    web = Http("https://example.org/mcp", headers={"Authorization": "Bearer abc"})
    servers = to_servers({"a": ["npx", "-y", "b"], "c": "http://127.0.0.1:8000/mcp", "d": web})
    assert servers == {"a": Stdio("npx", ("-y", "b")), "c": Http("http://127.0.0.1:8000/mcp"), "d": web}


def test_all_that_is_wrong_is_listed() -> None:
    with pytest.raises(DefinitionError) as caught:
        to_servers({"a b": ["x"], "empty": [], "ftp": "ftp://example.org", "words": "npx -y server"})
    codes = ["INVALID_SERVER_NAME", "MISSING_COMMAND", "INVALID_URL", "INVALID_URL"]
    assert [problem.code for problem in caught.value.problems] == codes


def test_what_a_file_holds_may_be_given_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", GIVEN["GITHUB_TOKEN"])
    entries = {
        "files": {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "${GITHUB_TOKEN}"}},
        "docs": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer abc"}},
        "off": {"command": "never", "disabled": True},
    }
    token = GIVEN["GITHUB_TOKEN"]
    servers = {
        "files": Stdio("npx", ["-y", "server"], env={"TOKEN": token}, keep=[], hidden=[token]),
        "docs": Http("https://example.org/mcp", headers={"Authorization": "Bearer abc"}, hidden=[]),
    }
    assert to_servers(entries) == to_servers({"mcpServers": entries}) == servers


@pytest.mark.parametrize(
    ("targets", "codes"),
    [
        ({"a": {}}, ["COMMAND_OR_URL"]),
        ({"a": {"comand": "npx", "env": {"TOKEN": "hunter2"}}}, ["INVALID_ENTRY"]),
        ({"mcpServers": {"a": {"args": "x"}, "b": 7}}, ["INVALID_ENTRY", "INVALID_SERVER"]),
        (
            {"a": None, "b": ["npx", 1], "c": {"command": "x", "args": ["${NOT_SET_ANYWHERE}"]}},
            [*["INVALID_SERVER"] * 2, "MISSING_VARIABLE"],
        ),
        ({"mcpServers": ["npx"]}, ["INVALID_SERVERS"]),
        (["npx", "hunter2"], ["INVALID_SERVERS"]),
        ({1: ["npx"]}, ["INVALID_SERVERS"]),
    ],
)
def test_a_target_that_is_none_is_told_without_its_values(targets: Any, codes: list[str]) -> None:  # noqa: ANN401
    with pytest.raises(DefinitionError) as caught:
        to_servers(targets)
    assert [problem.code for problem in caught.value.problems] == codes
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1/mcp", "http://a:0/mcp", "http://a:99999/mcp", "http://a:b/mcp"]
)
def test_an_address_that_nothing_can_be_at_is_refused(url: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        to_servers({"a": Http(url)})
    assert [problem.code for problem in caught.value.problems] == ["INVALID_URL"]


def test_a_file_lists_servers_in_the_form_of_desktop_programs(tmp_path: Path) -> None:
    servers = {
        "files": {"command": "npx", "args": ["-y", "server", "${HOME}/notes"], "env": {"TOKEN": "${GITHUB_TOKEN}"}},
        "docs": {
            "type": "http",
            "url": "http://127.0.0.1:${PORT}/mcp?key=${KEY:-none}",
            "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
            "only": ["search"],
        },
        "off": {"command": "never", "disabled": True},
    }
    for file in (written(tmp_path, {"mcpServers": servers}), written(tmp_path, servers)):
        loaded = load_servers(file, environ=GIVEN)
        args, env, hidden = ["-y", "server", "/home/ada/notes"], {"TOKEN": "hunter2hunter2"}, ["hunter2hunter2"]
        files = Stdio("npx", args, env=env, keep=[], hidden=["/home/ada", *hidden])
        headers = {"Authorization": "Bearer hunter2hunter2"}
        docs = Http("http://127.0.0.1:8080/mcp?key=none", headers=headers, only=["search"], hidden=hidden)
        assert loaded == {"files": files, "docs": docs}
        assert "hunter2" not in repr(loaded)


@pytest.mark.parametrize(
    ("servers", "fault"),
    [
        ("{", "Invalid JSON"),
        ([], "At the top: Input should be an object."),
        ({"a": {"comand": "x"}}, "At a.comand: Extra inputs are not permitted."),
        ({"a": {"command": "x", "args": "y"}}, "At a.args: Input should be a valid array."),
        ({"a": {}}, "Server 'a' has both command and url, or neither. Give one of them"),
        ({"a": {"command": "x", "url": "http://b"}}, "Server 'a' has both command and url, or neither."),
        ({"a": {"type": "sse", "url": "http://b"}}, "At a.type: Input should be 'stdio', 'http', "),
        ({"a": {"command": "${NOWHERE}"}}, "Server 'a' needs NOWHERE, which is not set. Set it, or give a default: "),
        ({"a": {"url": "${PORT}"}}, "The address of server 'a' is not an http:// or https:// URL."),
    ],
)
def test_a_faulty_file_is_refused(servers: object, fault: str, tmp_path: Path) -> None:
    assert fault in faults(tmp_path, servers)


def test_no_value_of_a_faulty_file_is_shown(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"TOKEN": ["hunter2"]}, "headers": {"Authorization": 7}}
    assert "hunter2" not in faults(tmp_path, {"a": entry})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="It cannot be read: No such file or directory"):
        load_servers(tmp_path / "none.json")


def test_secrets_are_taken_out_of_texts() -> None:
    server = Stdio("x", env={"TOKEN": "abc", "COLOR": "red", "LONG": "0123456789"}, hidden=["xyz"])
    assert scrubbed("abc red 0123456789 xyz", server.secrets) == "*** red *** ***"
    web = Http("https://ada:pass@example.org/mcp?key=k-1", headers={"Authorization": "Bearer t-1234"})
    assert scrubbed("Bearer t-1234, t-1234, pass, key=k-1", web.secrets) == "***, ***, ***, ***"
    assert (web.shown, repr(web)) == ("https://example.org/mcp", "Http(only=None)")
