"""The attacks that a permission must withstand: each is refused or asked about, and nothing of it runs first."""

import pytest

from journeyman.gate import Allow, Deny
from journeyman.permission.permission import Permission, PermissionMode
from journeyman.testing.scripted import call
from tests.permission.workshop import Approver, Workshop, request
from tests.play import texts

ALLOW = [
    *("Bash(touch *)", "Bash(git *)", "Edit(src/**)", "Read(src/**)"),
    *("WebFetch(example.org)", "WebFetch(*.example.org)"),
]

COMMANDS = {
    "semicolon": "touch a; touch trace",
    "semicolon without spaces": "touch a;touch trace",
    "ampersand": "touch a & touch trace",
    "and": "touch a && touch trace",
    "or": "touch --no-such-option || touch trace",
    "pipe": "touch a | touch trace",
    "pipe with errors": "touch a |& touch trace",
    "newline": "touch a\ntouch trace",
    "carriage return": "touch a\r\ntouch trace",
    "newline in an argument": "touch 'a\nb'",
    "substitution": "touch $(touch trace; echo a)",
    "substitution in quotes": 'touch "$(touch trace; echo a)"',
    "backticks": "touch `touch trace; echo a`",
    "backticks in quotes": 'touch "`touch trace; echo a`"',
    "process substitution": "touch <(touch trace)",
    "arithmetic": "touch $((1+1))",
    "variable": "touch $HOME",
    "indirect variable": "touch ${x:-$(touch trace)}",
    "escaped quote": r"touch $'trace'",
    "redirection": "touch a > trace",
    "redirection without spaces": "touch a>trace",
    "redirection of errors": "touch --no-such-option 2> trace",
    "appending": "touch a >> trace",
    "redirection of both": "touch a &> trace",
    "here document": "touch a <<x\ntrace\nx",
    "here string": "touch a <<< trace",
    "absolute program": "/usr/bin/touch trace",
    "relative program": "./touch trace",
    "program in a folder": "bin/touch trace",
    "program at home": "~/touch trace",
    "quoted absolute program": "'/usr/bin/touch' trace",
    "environment": "X=1 touch trace",
    "environment of a loader": "LD_PRELOAD=./evil.so touch trace",
    "assignment alone": "PATH=.",
    "star": "touch trac*",
    "question mark": "touch trac?",
    "class": "touch [t]race",
    "braces": "touch {trace,b}",
    "braces as program": "{touch,trace}",
    "star as option": "touch -- *",
    "tilde": "touch ~/trace",
    "backslash": r"touch trac\e",
    "escaped program": r"t\ouch trace",
    "line continuation": "tou\\\nch trace",
    "quoted program": "'touch' trace",
    "half quoted program": 't"ou"ch trace',
    "unterminated single quote": "touch 'trace",
    "unterminated double quote": 'touch "trace',
    "comment": "touch trace # harmless",
    "group": "{ touch trace; }",
    "subshell": "(touch trace)",
    "negation": "! touch trace",
    "condition": "if true; then touch trace; fi",
    "function": "touch() { touch trace; }; touch",
    "keyword": "time touch trace",
    "coprocess": "coproc touch trace",
    "evaluation": "eval touch trace",
    "another shell": "bash -c 'touch trace'",
    "through env": "env touch trace",
    "through command": "command touch trace",
    "traversal": "touch ../outside/trace",
    "traversal in an option": "touch --reference=../outside/secret trace",
    "traversal in a short option": "touch -r../outside/secret trace",
    "link": "touch way-out/trace",
    "link by itself": "touch way-out",
    "link as a folder": "git -C way-out init",
    "link behind the letter of an option": "git -Cway-out init",
    "link behind another letter": "touch -tway-out",
    "link behind a sign for files": "touch @way-out/secret",
    "link behind a colon": "touch a:way-out/trace",
    "link behind a comma": "touch a,way-out/trace",
    "link in a script": "touch 'w way-out/trace'",
    "address of a file": "touch file:///etc/hostname",
    "address of a file with a host": "touch file://localhost/etc/hostname",
    "address that is a path": "touch x://../../outside/trace",
    "address that is a path inside": "touch https://example.org/trace",
    "address that leads out": "git init https://../../outside/trace",
    "path in a quoted word": "touch \"f('../outside/trace')\"",
    "setting that runs a program": "git -c core.pager=trace -p log",
    "alias that runs a program": "git -c alias.x=!trace x",
    "option that runs a program": "git grep -Otrace x",
    "absolute path": "touch /opt/trace-of-a-test",
    "look-alike letter": "t\u043euch trace",
    "look-alike semicolon": "touch a\uff1btouch trace",
    "look-alike space": "touch\u00a0trace",
    "invisible space": "touch\u200b trace",
    "right to left": "touch \u202etrace",
    "form feed": "touch\ftrace",
    "escape sequence": "touch \x1b[2Ktrace",
    "nothing": "",
    "only blanks": "  \t ",
    "other program": "rm trace",
    "program that begins alike": "touchy trace",
    "nul": "touch a\0; touch trace",
    "endless": f"touch {'a' * 9_000}",
}


@pytest.mark.share(one_in=2)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
async def test_no_rule_allows_a_command_that_is_not_plain(workshop: Workshop, command: str) -> None:
    modes: dict[PermissionMode, int] = {"balanced": 1, "strict": 0, "auto": 1}
    for mode, n_asked in modes.items():
        approver, gate = Approver(), Permission(mode=mode, allow=ALLOW, roots=[workshop.root])
        result = await workshop.play(gate, call("bash", command=command), approver=approver)
        assert (workshop.ran, workshop.trace(), len(approver.asked)) == ([], set(), n_asked), mode
        assert texts(result)[0].startswith("Error: denied: "), mode


async def test_a_plain_command_is_allowed_and_does_leave_a_trace(workshop: Workshop) -> None:
    gate = Permission(mode="strict", allow=ALLOW, roots=[workshop.root])
    plain = ["touch trace", "touch 'a b' \"c\"", "  touch\t-- src/d.txt ", "git log https://example.org/x"]
    await workshop.play(gate, [call("bash", command=command) for command in plain])
    assert workshop.trace() == {f"project/{name}" for name in ("trace", "a b", "c", "src/d.txt")}
    assert [each["command"] for each in workshop.ran] == plain


PATHS = {
    "traversal": "../outside/trace",
    "traversal through what is allowed": "src/../trace",
    "deep traversal": "src/a/b/../../../../outside/trace",
    "doubled slashes": "src//..//..//outside/trace",
    "link": "src/way-out/trace",
    "link to what does not exist yet": "src/way-out/new/folder/trace",
    "link and back": "src/way-out/../trace",
    "home": "~/trace-of-a-test",
    "look-alike letter": "\u0455rc/trace",
    "look-alike slash": "src\u2215..\u2215trace",
    "look-alike dots": "src/\uff0e\uff0e/trace",
    "folder that begins alike": "src-old/trace",
    "glob": "sr*/trace",
    "blank": " src/trace",
    "nul": "src/a\0/../../trace",
    "endless": f"src/{'a/' * 5_000}trace",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=list(PATHS))
@pytest.mark.parametrize("is_absolute", [False, True])
async def test_no_rule_allows_a_path_that_leads_elsewhere(workshop: Workshop, path: str, is_absolute: bool) -> None:
    approver = Approver()
    path = f"{workshop.root}/{path}" if is_absolute and not path.startswith("~") else path
    gate = Permission(allow=ALLOW, roots=[workshop.root])
    result = await workshop.play(gate, call("write", path=path, content="x"), approver=approver)
    assert (workshop.ran, workshop.trace()) == ([], set())
    assert texts(result)[0].startswith("Error: denied: ")
    assert len(approver.asked) == (0 if "\0" in path or len(path) > 4_000 else 1)


@pytest.mark.parametrize("mode", ["strict", "balanced", "auto", "trust", "plan"])
@pytest.mark.parametrize("path", ["../outside/secret", "src/way-out/secret", "way-out/secret", "/etc/hostname"])
async def test_every_mode_asks_before_it_reads_outside_of_the_roots(
    workshop: Workshop, mode: PermissionMode, path: str
) -> None:
    approver = Approver()
    gate = Permission(mode=mode, allow=["Read(**)", "read"], roots=[workshop.root])
    await workshop.play(gate, call("read", path=path), approver=approver)
    assert (workshop.ran, len(approver.asked), approver.asked[0].offers) == ([], 1, ("once",))


@pytest.mark.parametrize("mode", ["auto", "trust"])
async def test_trust_ends_at_the_roots(workshop: Workshop, mode: PermissionMode) -> None:
    gate = Permission(mode=mode, roots=[workshop.root])
    answers = [call("write", path=path, content="x") for path in ("inside", "../outside/trace", "way-out/trace")]
    result = await workshop.play(gate, answers)
    assert workshop.trace() == {"project/inside"}
    assert [text.startswith("Error: denied: ") for text in texts(result)] == [False, True, True]


URLS = {
    "other host": "https://evil.org/",
    "host that ends alike": "https://evilexample.org/",
    "host that begins alike": "https://example.org.evil.org/",
    "user": "https://example.org@evil.org/",
    "user and password": "https://example.org:x@evil.org/",
    "backslash": "https://evil.org\\@example.org/",
    "backslash before the path": "https://evil.org\\.example.org/",
    "encoded": "https://evil.org%2f.example.org/",
    "blank": "https://evil.org .example.org/",
    "newline": "https://evil.org/\nhttps://example.org/",
    "look-alike letter": "https://\u0435xample.org/",
    "look-alike dot": "https://evil\u3002example.org/",
    "look-alike slash": "https://evil.org\uff0f.example.org/",
    "other scheme": "file://example.org/etc/passwd",
    "no scheme": "//example.org/",
    "half a scheme": "https:example.org",
    "unclosed bracket": "https://[example.org/",
}


@pytest.mark.parametrize("url", URLS.values(), ids=list(URLS))
async def test_no_rule_allows_a_host_that_may_be_another(workshop: Workshop, url: str) -> None:
    approver = Approver()
    await workshop.play(Permission(allow=ALLOW, roots=[workshop.root]), call("fetch", url=url), approver=approver)
    assert (workshop.ran, len(approver.asked)) == ([], 1)


@pytest.mark.parametrize(
    "url", ["https://example.org", "http://A.B.EXAMPLE.ORG:8080/x?y=@evil.org#z", "https://example.org./"]
)
async def test_a_host_that_is_named_is_allowed(workshop: Workshop, url: str) -> None:
    await workshop.play(Permission(mode="strict", allow=ALLOW, roots=[workshop.root]), call("fetch", url=url))
    assert workshop.ran == [{"url": url}]


DENIED = {
    "plain": "rm -rf trace",
    "second": "cd src && rm -rf trace",
    "after a newline": "ls\nrm -rf trace",
    "in the background": "ls & rm -rf trace",
    "at the end of a pipe": "ls | rm -rf trace",
    "absolute": "/bin/rm -rf trace",
    "with an environment": "X=1 Y=2 rm -rf trace",
    "substituted": "echo $(rm -rf trace)",
    "in backticks": "echo `rm -rf trace`",
    "in quotes": 'echo "$(rm -rf trace)"',
    "deep": "echo $(echo $(echo `rm -rf trace`))",
    "in a process substitution": "cat <(rm -rf trace)",
    "with sudo": "sudo -u root rm -rf trace",
    "with env": "env -i X=1 rm -rf trace",
    "with xargs": "echo trace | xargs rm -rf",
    "in another shell": "bash -c 'ls; rm -rf trace'",
    "evaluated": 'eval "rm -rf trace"',
    "found": "find . -name x -exec rm -rf {} ;",
    "in a loop": "for x in 1 2; do rm -rf trace; done",
    "in a condition": "if true; then rm -rf trace; fi",
    "in a function": "f() { rm -rf trace; }; f",
    "escaped": r"r\m -rf trace",
    "quoted": "'rm' -rf trace",
    "half quoted": 'r"m" -rf trace',
    "continued": "r\\\nm -rf trace",
    "as a variable": "x=rm; $x -rf trace",
    "as a glob": "/bin/r? -rf trace",
    "with a redirection in the middle": "rm >&2 -rf trace",
    "hidden by a comment": "ls # it's\nrm -rf trace\n# it's",
    "hidden by a here document": "cat <<'x'\nit's\nx\nrm -rf trace; echo ''",
    "hidden by an escaped quote": "echo $'\\'' ; rm -rf trace ; echo ''",
    "hidden by braces": "echo ${x:-'}'} ; rm -rf trace ; echo ''",
    "endless": f"ls {'a' * 9_000}",
}


@pytest.mark.parametrize("command", DENIED.values(), ids=list(DENIED))
async def test_a_denied_program_is_found_anywhere(workshop: Workshop, command: str) -> None:
    (workshop.root / "trace").write_text("still here")
    for approve in (None, Approver(Allow("always"))):
        gate = Permission(mode="trust", allow=["Bash(*)"], deny=["Bash(rm *)"], roots=[workshop.root])
        result = await workshop.play(gate, call("bash", command=command), approver=approve)
        assert (workshop.ran, workshop.trace()) == ([], {"project/trace"})
        assert "the rule Bash(rm *) forbids it" in texts(result)[0]


@pytest.mark.parametrize(
    "command", ["git rm x", "ls -rm", "echo rm -rf x", "git commit -m 'rm old files'", "touch $HOME/x"]
)
async def test_what_only_speaks_of_a_denied_program_is_not_denied(workshop: Workshop, command: str) -> None:
    gate = Permission(mode="trust", deny=["Bash(rm *)"], roots=[workshop.root])
    assert await gate.decide(request("bash", command=command)) == Allow()


@pytest.mark.parametrize(
    "path",
    ["secrets/key", "src/../secrets/key", "./secrets//key", "alias/key", "alias", "SECRETS/key", "\uff53ecrets/key"],
)
async def test_a_denied_path_is_found_under_every_name(workshop: Workshop, path: str) -> None:
    (workshop.root / "secrets").mkdir()
    (workshop.root / "alias").symlink_to(workshop.root / "secrets")
    gate = Permission(mode="trust", allow=["Edit(**)"], deny=["Edit(secrets)"], roots=[workshop.root])
    result = await workshop.play(gate, call("write", path=path, content="x"), approver=Approver(Allow()))
    assert workshop.ran == []
    assert "the rule Edit(secrets) forbids it" in texts(result)[0]


async def test_a_denied_name_is_found_at_any_depth(workshop: Workshop) -> None:
    gate = Permission(mode="trust", deny=["Read(**/.ssh/id_*)"], roots=[workshop.root])
    paths = (".ssh/id_rsa", "a/b/.ssh/id_rsa", "/x/.ssh/id_dsa", "~/.ssh/id_rsa")
    result = await workshop.play(gate, [call("read", path=path) for path in paths], approver=Approver(Allow()))
    assert workshop.ran == []
    assert all("forbids it" in text for text in texts(result))


EVIL = "https://evil.org https://EVIL.org./x https://a@evil.org https://evil.org\\x https://ev\u0131l.org@evil.org"


@pytest.mark.parametrize("url", EVIL.split())
async def test_a_denied_host_is_found_in_every_reading(workshop: Workshop, url: str) -> None:
    gate = Permission(mode="trust", deny=["WebFetch(evil.org)"], roots=[workshop.root])
    assert isinstance(await gate.decide(request("fetch", "pure", untrusted=True, url=url)), Deny)
