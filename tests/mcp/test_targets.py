"""Where servers are: in code, and in a file; no secret is shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman import DefinitionError
from journeyman.mcp import Http, OAuth, Stdio, load_servers
from journeyman.mcp.servers import to_servers
from journeyman.tools.redaction import scrub_secrets

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
        to_servers({"a\nb": ["x"], "empty": [], "ftp": "ftp://example.org", "words": "npx -y server"})
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
        ({"a": {"comand": "npx", "env": {"TOKEN": "hunter2"}}}, ["COMMAND_OR_URL"]),
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
        ({"a": {"comand": "x"}}, "an address to call. It has also comand."),
        ({"a": {"command": "x", "args": "y"}}, "At a.args: Input should be a valid array."),
        ({"a": {}}, "Server 'a' has both command and url, or neither. Give one of them"),
        ({"a": {"command": "x", "url": "http://b"}}, "Server 'a' has both command and url, or neither."),
        ({"a": {"type": "sse", "url": "http://b"}}, "'a' is of type sse, the transport before streamable HTTP"),
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


GIT = {"command": "uvx", "args": ["mcp-server-git"]}
DOCS = {"url": "https://example.org/mcp"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"mcpServers": {"git": {**GIT, "autoApprove": [], "alwaysAllow": ["log"], "timeout": 60}}}, "git.timeout"),
        ({"mcpServers": {"git": {**GIT, "description": "history", "colour": 7}}}, "git.colour"),
        ({"$schema": "https://example.org/s.json", "globalShortcut": "", "mcpServers": {"git": GIT}}, "globalShortcut"),
        ({"$schema": "https://example.org/s.json", "git": GIT}, "$schema"),
        ({"inputs": [], "servers": {"git": {**GIT, "type": "stdio", "gallery": True}}}, "inputs, git.gallery"),
        ({"mcp": {"servers": {"git": GIT}}, "editor.tabSize": 2}, "editor.tabSize"),
        ({"numStartups": 7, "projects": {}, "mcpServers": {"git": GIT}}, "numStartups, projects"),
    ],
)
def test_what_concerns_another_program_is_ignored_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: object, told: str
) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode())
    with caplog.at_level("INFO", "journeyman"):
        assert load_servers(file, environ={}) == to_servers({"git": GIT})
    (line,) = caplog.messages
    assert told in line


WRITTEN_BY_EDITORS = """// the servers of this folder
{
  "servers": {  /* all
     of them */
    "git": {
      "command": "uvx",
      "args": ["mcp-server-git",],  // https://example.org
    },
    // "docs": {"url": "https://example.org/mcp"},
  },
}
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_json_is_read_as_editors_write_it(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(WRITTEN_BY_EDITORS.encode(encoding))
    assert load_servers(file, environ={}) == to_servers({"git": GIT})
    kept = ["//a", "/* b */", 'c", }', "d,]", "\\"]
    file.write_bytes(json.dumps({"a": {"command": "x", "args": kept}}).encode(encoding))
    assert load_servers(file, environ={}) == {"a": Stdio("x", kept, **LISTS)}


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (WRITTEN_BY_EDITORS.replace('"args"', "args").encode(), "key must be a string at line 7 column 7"),
        (WRITTEN_BY_EDITORS.replace("*/", "").encode(), "at line 3"),
        (WRITTEN_BY_EDITORS.removesuffix("}\n").encode(), "at line 11"),
        (b'{"a": {"command": "x"}},', "trailing characters at line 1"),
        (b'{"a": {"command": "x"},,}', "at line 1"),
        (b'{\n"a": {"command": "stra\xdfe"}}', "line 2 is not in UTF-8"),
        (b'{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' stands in one object twice"),
        (b'{"a": {"command": "x", "command": "y"}}', "'command' stands in one object twice"),
        (b"[" * 5_000, "recursion limit exceeded at line 1"),
    ],
)
def test_what_is_no_json_is_told_with_its_line(tmp_path: Path, raw: bytes, told: str) -> None:
    (tmp_path / "mcp.json").write_bytes(raw)
    with pytest.raises(DefinitionError) as caught:
        load_servers(tmp_path / "mcp.json", environ={})
    assert told in str(caught.value)
    assert "Correct the file. It is JSON, in which comments and a last comma may stand." in str(caught.value)


WORDS = ["uvx", "mcp-server-git"]


@pytest.mark.parametrize(
    "content",
    [
        {"$schema": "https://example.org/c.json", "mcp": {"git": {"type": "local", "command": WORDS, "enabled": True}}},
        {"context_servers": {"git": {"source": "custom", **GIT, "env": {}}}, "languages": {}},
        {"context_servers": {"git": {"command": {"path": "uvx", "args": WORDS[1:], "env": None}, "settings": {}}}},
        {"amp.mcpServers": {"git": GIT}, "amp.tab": 2},
        {"mcp_servers": {"git": GIT}},
    ],
)
def test_files_of_other_editors_list_the_same_server(tmp_path: Path, content: object) -> None:
    assert load_servers(written(tmp_path, content), environ={}) == to_servers({"git": GIT})


def test_other_words_for_the_fields_of_a_server_are_understood(tmp_path: Path) -> None:
    entries = {
        "Gemini's docs": {"httpUrl": "https://example.org/mcp", "excludeTools": ["drop"], "includeTools": ["*"]},
        "windsurf/docs": {"serverUrl": "https://example.org/mcp", "disabledTools": ["drop"]},
        "numbers": {**GIT, "transport": "stdio", "env": {"PORT": 8080, "DEBUG": True}, "tools": ["log"]},
        "off": {**GIT, "enabled": False},
        "unfilled": {**GIT, "env": {"TOKEN": "${input:token}"}, "disabled": True},
    }
    entries["Gemini docs"] = entries.pop("Gemini's docs")
    assert load_servers(written(tmp_path, {"mcpServers": entries}), environ={}) == {
        "Gemini docs": Http("https://example.org/mcp", auth=OAuth(), without=("drop",), hidden=[]),
        "windsurf/docs": Http("https://example.org/mcp", auth=OAuth(), without=("drop",), hidden=[]),
        "numbers": Stdio("uvx", ["mcp-server-git"], env={"PORT": "8080", "DEBUG": "true"}, **LISTS, only=["log"]),
    }


LISTS: dict[str, Any] = {"keep": [], "hidden": []}


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({**GIT, "denyTools": ["drop"]}, "Server 'a' has denyTools, which is not known here."),
        ({**GIT, "sandboxEnabled": True}, "Server 'a' has sandboxEnabled, which is not known here."),
        ({**GIT, "envFile": ".env"}, "Server 'a' has envFile, which is not known here."),
        ({**GIT, "type": "http"}, "Server 'a' is of type http, and has no url."),
        ({**DOCS, "type": "stdio"}, "Server 'a' is of type stdio, and has no command."),
        ({**DOCS, "type": "ws"}, "Server 'a' is of type 'ws'."),
        ({**DOCS, "httpUrl": "https://b"}, "Server 'a' has both httpUrl and url, which mean the same."),
        ({**GIT, "disabledTools": "drop"}, "At a.without: Input should be a valid array."),
        ({**GIT, "enabled": "no"}, "Server 'a' has enabled, which is not known here."),
    ],
)
def test_what_restricts_is_honoured_or_refused_by_name(tmp_path: Path, entry: object, fault: str) -> None:
    assert fault in faults(tmp_path, {"mcpServers": {"a": entry}})


def test_two_servers_are_told_apart_where_tools_and_rules_name_them(tmp_path: Path) -> None:
    assert "'my git' and 'my/git' have one name, my_git" in faults(tmp_path, {"my git": GIT, "my/git": GIT})


@pytest.mark.parametrize(
    "value",
    [
        *("${input:token}", "${env.TOKEN}", "${config:a.b}", "${{ secrets.TOKEN }}", "${TOKEN", "${TOKEN:?}", "${}"),
        *("${TOKEN:-${OTHER}}", "$TOKEN", "%TOKEN%", "{{TOKEN}}", "<YOUR_TOKEN>", "$(pass token)", "{env:TOKEN}"),
        *("$env:TOKEN", "{file:/run/token}", "${command:x}", "${file:token}", "${ TOKEN }", "${op://vault/token}"),
        *("YOUR_API_KEY", "your-token-here"),
    ],
)
def test_a_placeholder_that_is_not_understood_is_no_password(tmp_path: Path, value: str) -> None:
    for text in (value, f"Bearer {value}"):
        said = faults(tmp_path, {"docs": {**DOCS, "headers": {"Authorization": text}}})
        assert "Server 'docs' has " in said
        assert " at headers.Authorization, which nothing here fills in." in said
    assert " at env.TOKEN, which" in faults(tmp_path, {"git": {**GIT, "env": {"TOKEN": value}}})
    if value.startswith("${"):
        assert " at args.0, which" in faults(tmp_path, {"git": {"command": "x", "args": [f"--token={value}"]}})
        assert " at url, which" in faults(tmp_path, {"docs": {"url": f"https://example.org/mcp?key={value}"}})
        with pytest.raises(DefinitionError, match="Only a file of servers is filled in"):
            to_servers({"docs": Http("https://example.org/mcp", headers={"Authorization": value})})


def test_a_value_of_the_environment_is_sent_as_it_is(tmp_path: Path) -> None:
    entry = {**DOCS, "headers": {"Authorization": "Bearer ${env:TOKEN}"}}
    loaded = load_servers(written(tmp_path, {"docs": entry}), environ={"TOKEN": "$ecret${x}"})["docs"]
    assert isinstance(loaded, Http)
    assert loaded.headers == {"Authorization": "Bearer $ecret${x}"}


def test_secrets_are_taken_out_of_texts() -> None:
    server = Stdio("x", env={"TOKEN": "abc", "COLOR": "red", "LONG": "0123456789"}, hidden=["xyz"])
    assert scrub_secrets("abc red 0123456789 xyz", server.secrets) == "[redacted] red [redacted] [redacted]"
    web = Http("https://ada:pass@example.org/mcp?key=k-1", headers={"Authorization": "Bearer t-1234"})
    assert (
        scrub_secrets("Bearer t-1234, t-1234, pass, key=k-1", web.secrets)
        == "[redacted], [redacted], [redacted], [redacted]"
    )
    assert (web.shown, repr(web)) == ("https://example.org/mcp", "Http(only=None, without=())")
