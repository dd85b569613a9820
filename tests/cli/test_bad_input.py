"""What cannot be used is one line on stderr: what is wrong, and the next step. Never a traceback, nothing on stdout."""

import asyncio
import json
import shlex
import subprocess
from pathlib import Path

import pytest

from journeyman.cli import COMMANDS, SHARED
from journeyman.cli.app import app
from journeyman.cli.options import options_taken
from tests.cli.program import AGENTS, Done, Warm, assert_one_error_line, command, environment
from tests.support.servers import MessagesApi

SEVERAL = AGENTS.with_name("several.py")
FILES = {
    "agents.py": """
        from journeyman import Agent
        from journeyman.testing.scripted import ScriptedModel
        analyst = Agent(name="analyst", model=ScriptedModel(["hi"]))
        writer = Agent(name="writer", model="antropic:claude-sonnet-5-5")
        counter = Agent(name="counter", model=ScriptedModel(["hi"]), input=int)
        number = 3
        def make(): ...
        """,
    "raises.py": """
        def dig():
            raise ValueError("it broke\\nbadly.")
        dig()
        """,
    "unparsed.py": "x = 1\ndef f(:\n",
    "leaves.py": "import sys\nprint('{}')\nsys.exit(4)\n",
    "needs.py": "import package_that_is_missing.part\n",
    "cancels.py": "import asyncio\nraise asyncio.CancelledError\n",
    "wrong.py": "from journeyman import Agent\n\nAgent(name='a b', model='claude', tools=[3])\n",
    "toolish.py": "from journeyman import tool\n\n@tool\ndef f(x): ...\n",
    "empty.py": "x = 1\n",
    "notes.txt": "hello\n",
}
BYTES = {
    **{"latin.py": b"x = 'caf\xe9'\n", "latin.txt": b"caf\xe9", "latin.csv": b"caf\xe9,b\n1,2\n"},
    **{"empty.csv": b"", "narrow.csv": b"a\n1\n2\n"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    made = tmp_path_factory.mktemp("bad")
    for name, text in FILES.items():
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        (made / name).write_text("\n".join(line[indent:] for line in lines) + "\n", encoding="utf-8")
    for name, data in BYTES.items():
        (made / name).write_bytes(data)
    (made / "folder").mkdir()
    recorded = warm("run", "agents.py:analyst", "hi", "--record", "--store", "good.db", cwd=made)
    assert (
        recorded.code,
        warm("cassette", "record", "agents.py:analyst", "hi", "--out", "good.jsonl", cwd=made).code,
    ) == (0, 0)
    return made


CASES: dict[str, tuple[str, list[str]]] = {
    "a file that is missing": ("run agent.py:analyst hi", ["There is no file agent.py. Did you mean agents.py?"]),
    "a file to check that is missing": ("check nowhere.py:agent", ["error: There is no file nowhere.py. "]),
    "a folder": ("run folder hi", ["folder is a folder. Name a file in it"]),
    "a file that is no Python": ("run notes.txt hi", ["notes.txt is no Python file. Give a file that ends in"]),
    "a missing attribute with a close one": (
        "run agents.py:analist hi",
        [
            "agents.py has no 'analist'. Did you mean agents.py:analyst?",
            "Agents in agents.py: analyst, writer, counter.",
        ],
    ),
    "no attribute where there are several agents": (
        "run agents.py hi",
        ["agents.py holds 3 agents. Say which: agents.py:analyst or agents.py:writer or agents.py:counter"],
    ),
    "a colon without an attribute": ("run agents.py: hi", ["agents.py: names no agent after the colon."]),
    "a function that returns nothing": (
        "run agents.py:make hi",
        ["agents.py:make (agents.py, line 7) gives None, not an agent. Return the agent from it."],
    ),
    "a file that raises": (
        "run raises.py:a hi",
        ["raises.py, line 2 raises ValueError: it broke badly. Fix it; the whole traceback: python raises.py"],
    ),
    "a file that does not parse": (
        "run unparsed.py:a hi",
        ["unparsed.py, line 2 does not parse: invalid syntax. Fix that line."],
    ),
    "a file that is not UTF-8": ("run latin.py:a hi", ["latin.py", "does not parse", "'utf-8' codec"]),
    "a file that exits": (
        "run leaves.py:a hi --json",
        ["leaves.py, line 3 calls sys.exit(4) when it is imported. Put that under if __name__ == '__main__'."],
    ),
    "a file that raises no Exception": ("run cancels.py:a hi", ["cancels.py, line 2 raises CancelledError."]),
    "a file that needs a package": (
        "run needs.py:a hi",
        ["needs.py, line 1 imports package_that_is_missing, which is not installed. Install it where journeyman is"],
    ),
    "a definition with problems": (
        "run wrong.py hi",
        ["wrong.py, line 3: Agent 'a b' has 3 problems, first: ", "See them all: journeyman check wrong.py"],
    ),
    "a definition with one problem": (
        "run toolish.py hi",
        ["toolish.py, line 3: Tool 'f': Parameter 'x' has no type. Annotate it"],
    ),
    "a module that is missing": ("run no.such:a hi", ["There is no module no. Install it, or name a file"]),
    "no input": ("run agents.py:analyst", ["There is no input. Give it as text", "or from a file: < FILE."]),
    "a table that is missing": ("demo --data missing.csv", ["missing.csv", "does not exist"]),
    "a table that is empty": ("demo --data empty.csv", ["empty.csv", "is empty"]),
    "a table that is not UTF-8": ("demo --data latin.csv", ["latin.csv", "is not UTF-8"]),
    "a table of one column": ("demo --data narrow.csv", ["narrow.csv", "has one column only"]),
    "an unknown command": ("rnu", ["Unknown command", "Did you mean", "run", "See: journeyman --help"]),
    "an unknown option": ("run agents.py hi --jsn", ["Unknown option: --jsn. Did you mean --json?"]),
    "an unknown option of two that are alike": ("chat --recrod", ["Unknown option: --recrod. Did you mean --record?"]),
    "no agent": ("run", ["FILE:AGENT requires an argument. See: journeyman run --help"]),
    "too many words": ("run agents.py:analyst hi there", ["'there' is one word too many. See: journeyman run --help"]),
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("case", CASES)
def test_bad_usage_is_one_line_and_exit_code_2(case: str, folder: Path, warm: Warm) -> None:
    words, parts = CASES[case]
    done = warm(*words.split(), cwd=folder)
    assert_one_error_line(done, 2, parts)
    assert done.stderr.replace("{}\n", "").count("\n") == 1


MORE: dict[str, str] = {
    "run agents.py:analyst hi --detach": "--detach is for a durable run. Add --durable.",
    "run agents.py:analyst hi --durable --mcp x.json": "--mcp is not for a durable run: it would go on without",
    "run agents.py:analyst hi --durable --store mysql://x": "there is no kind 'mysql'. Give a path, sqlite:PATH, or",
    "run agents.py:analyst hi --durable --id ''": "The id '' cannot be used: it is empty. Give it another --id.",
    "run agents.py:analyst hi --timeout nan": "for --timeout. Give a number above 0.",
    "run agents.py:analyst hi --file nope.png": "nope.png cannot be read: ",
    "run agents.py:analyst hi --file empty.csv": "empty.csv is empty.",
    "run agents.py:analyst hi --mcp notes.txt": "The MCP configuration notes.txt: At the top: Invalid JSON",
    "run agents.py:analyst hi --pins pins.json": "--pins is for the tools of MCP servers. Add --mcp FILE",
    "run agents.py:analyst hi --skills nope": "--skills: nope holds no skills: ",
    "run agents.py:analyst hi --agents nope": "--agents: nope holds no agents. Give the folder with their .md files.",
    "run agents.py:analyst hi --durable --agents x": "--agents is not for a durable run: it would go on without these",
    "run agents.py:analyst hi --mode careful": 'Invalid value "careful" for --mode. Choose from: "strict", "balanced"',
    "run agents.py:analyst hi --timeout soon": 'Invalid value for --timeout: unable to convert "soon" into float.',
    "run agents.py:analyst hi --mode": "Parameter --mode requires an argument. See: journeyman run --help",
    "run nowhere/x.py:analyst hi": "There is no file nowhere/x.py. Check the path; it is relative to the current",
    "run agents.py:number hi": "agents.py:number is an int, not an agent. Agents in agents.py: analyst",
    "run empty.py hi": "empty.py holds no agent. Define one at the top level",
    "run '' hi": ". is a folder. Name a file in it",
    "run : hi": "There is no file :. Check the path",
    "run agents.py:analyst.name hi": "agents.py:analyst.name is a str, not an agent.",
    "run os:getcwd hi": "os:getcwd gives a str, not an agent.",
    "chat agents.py:analyst --session-file folder": "folder could not be opened: unable to open database file.",
    "chat agents.py:analyst --session-file notes.txt": "notes.txt is not a store of journeyman. Give another path.",
    "chat agents.py:analyst -m nonsense": "The model name 'nonsense' is not of the form 'provider:model'.",
    "chat agents.py:analyst --session-file mysql://x": "there is no kind 'mysql'",
    "chat agents.py:analyst --session-file postgresql://ann:pw@127.0.0.1:1/x": "could not be opened",
    "chat agents.py:analyst --session-file s2.db --resume": "s2.db has no conversation with analyst. Leave --resume",
    "batch agents.py:analyst notes.txt --out out": "The name of notes.txt does not tell how it is written.",
    "batch agents.py:analyst narrow.csv --out folder": "folder cannot be written: ",
    "batch agents.py:analyst narrow.csv --out out --cost nan": "for --cost. Give a number above 0.",
    "check agents.py:nope": "agents.py has no 'nope'. Agents in agents.py: analyst, writer, counter.",
    "cassette replay notes.txt": "notes.txt, line 1: this is not JSON, or is cut off",
    "runs --store nope.db": "There is no store nope.db. Check --store or JOURNEYMAN_STORE",
    "prune --older-than soon": "'soon' is no duration. Give a number and a unit",
    "worker": "No agent is named. Name one or more: journeyman worker agents.py:analyst",
    "worker agents.py:analyst --queue =3 --store w.db": "--queue '=3' is no queue. Give NAME, or NAME=AT_ONCE",
    "mcp agents.py:analyst --port 80": "--host, --port and --allow-host are for HTTP. Add --http",
    "mcp agents.py:analyst --http --port 99999": "--port 99999 is no port. Give a number from 0 to 65535",
    "mcp agents.py:analyst --http --port -1": "--port -1 is no port.",
    "mcp pin": "No server is named. Name a file of servers, an address or a command",
    "cassette record agents.py:analyst hi --out folder": "folder is a folder. Name a file in it: --out folder/trip",
    "cassette record agents.py:analyst hi --out ''": ". is a folder. Name a file in it: --out trip.jsonl",
    "cassette record agents.py:analyst hi --out notes.txt/x": "notes.txt/x cannot be written: ",
    "cassette replay folder": "folder cannot be read: …. Give a file that you may read.",
    "cassette replay nope.jsonl": "There is no file nope.jsonl. Record it: journeyman cassette record FILE:AGENT INPUT",
    "cassette replay empty.csv": "empty.csv is empty. Record it again.",
    "run agents.py:analyst hi --mcp folder": "The MCP configuration folder: It cannot be read: ",
    "run agents.py:analyst hi --mcp nope.json": "The MCP configuration nope.json: It cannot be read: ",
    "run agents.py:analyst hi --file folder": "folder cannot be read: …. Give a file that you may read.",
    "run agents.py:analyst hi --skills notes.txt": "--skills: notes.txt holds no skills: ",
    "run agents.py:analyst hi --timeout -1": "for --timeout. Give a number above 0.",
    "run agents.py:analyst hi --durable --store folder": "folder could not be opened: unable to open database file.",
    "run agents.py:analyst hi --durable --store notes.txt": "notes.txt is not a store of journeyman.",
    f"run agents.py:analyst hi --durable --id {'a' * 300}": "cannot be used: it has 300 characters; at most 200 are",
    f"run {'a' * 5_000} hi": "There is no module aaaa",
    f"run {'a' * 5_000}/agents.py hi": "There is no file aaaa",
    "batch agents.py:analyst folder --out out --format jsonl": "folder cannot be read: ",
    "batch agents.py:analyst nope.jsonl --out out": "There is no file nope.jsonl.",
    "batch agents.py:analyst narrow.csv --out out --max-concurrency -3": "for --max-concurrency. Give a number",
    "batch agents.py:analyst narrow.csv --out out --budget 0": "for --budget. Give a number above 0.",
    "batch agents.py:analyst narrow.csv --out notes.txt": "notes.txt is not the output of a batch: line 1 is no",
    "chat agents.py:analyst --resume nothing --session-file s.db": "s.db has no session 'nothing'. It has none yet: le",
    "chat folder": "folder is a folder. Name a file in it",
    "check notes.txt": "notes.txt is no Python file.",
    "runs -n 0 --store notes.txt": "for -n. Give a number above 0.",
    "show x --store notes.txt": "notes.txt is not a store of journeyman.",
    "resume x --store folder": "folder could not be opened: unable to open database file.",
    "fork x --at here --store notes.txt": "--at 'here' is no place. Give the attempt and the iteration, from 1:",
    "prune": "Which runs? Name runs, or give --older-than 30d; not both.",
    "prune x --older-than 30d": "Which runs? Name runs, or give --older-than 30d; not both.",
    "runs --queues --store nope.db": "There is no store nope.db.",
    "worker agents.py:analyst --max-concurrency 0 --store w.db": "for --max-concurrency. Give a number above 0.",
    "worker agents.py:analyst --grace -1 --store w.db": "for --grace. Give a number from 0 on.",
    "view --port 99999 notes.txt": "--port 99999 is no port. Give a number from 0 to 65535; 0 takes a free one.",
    "view folder": "folder could not be opened: unable to open database file.",
    "serve": "No agent is named. Name one or more: journeyman serve agents.py:analyst",
    "serve agents.py:analyst --port 0 --max-concurrency 0": "for --max-concurrency. Give a number above 0.",
    "demo --data folder": "folder cannot be read (…). Give a CSV file that you may read.",
    "batch agents.py:analyst narrow.csv --out out --durable notes.txt": "notes.txt is not a store of journeyman.",
    "batch agents.py:analyst narrow.csv --out out --model nonsense": "The model name 'nonsense' is not of the form",
    "batch agents.py:analyst narrow.csv --out out --mcp notes.txt": "The MCP configuration notes.txt: At the top",
    "batch agents.py:analyst narrow.csv --out out --pins pins.json": "--pins is for the tools of MCP servers.",
    "batch agents.py:analyst narrow.csv --out out --skills nope": "--skills: nope holds no skills",
    "batch agents.py:analyst narrow.csv --out out --agents nope": "--agents: nope holds no agents.",
    "batch agents.py:analyst narrow.csv --out out --timeout 0": "for --timeout. Give a number above 0.",
    "batch agents.py:analyst narrow.csv --out ''": ". cannot be written: ",
    "batch agents.py:analyst narrow.csv --out out --separator ab": "--separator 'ab' is not one character.",
    "batch agents.py:analyst narrow.csv --out out --encoding klingon": "--encoding 'klingon' is no encoding of text.",
    "batch agents.py:analyst narrow.csv --out out --input-field nope": "--input-field names 'nope', and the inputs",
    "batch agents.py:analyst narrow.csv --out out --key nope": "--key names 'nope', and the inputs have no such",
    "batch agents.py:analyst narrow.csv --out out --files nope": "--files names 'nope', and the inputs have no such",
    "run agents.py:analyst hi --rules nope.json": "--rules nope.json cannot be read: ",
    "chat agents.py:analyst --rules nope.json": "--rules nope.json cannot be read: ",
    "chat agents.py:analyst --tools none": "--tools is for the assistant; agents.py:analyst has its own",
    "chat agents.py:analyst --mcp notes.txt": "The MCP configuration notes.txt: At the top",
    "chat agents.py:analyst --pins pins.json": "--pins is for the tools of MCP servers. Add --mcp",
    "chat agents.py:analyst --skills nope": "--skills: nope holds no skills",
    "chat agents.py:analyst --agents notes.txt": "--agents: notes.txt holds no agents.",
    "chat agents.py:analyst --timeout -1": "for --timeout. Give a number above 0.",
    "check agents.py:analyst --skills nope": "--skills: nope holds no skills",
    "cassette record agents.py:analyst hi --out t.jsonl --timeout inf": "for --timeout. Give a number above 0.",
    "cassette replay good.jsonl agents.py:analyst --timeout 0": "for --timeout. Give a number above 0.",
    "cassette replay good.jsonl agents.py:nope": "agents.py has no 'nope'.",
    "runs --agent nobody --store nope.db": "There is no store nope.db.",
    "runs --since yesterday --store good.db": "'yesterday' is no duration. Give a number and a unit",
    "runs --over-cost nan --store good.db": "for --over-cost. Give a number from 0 on.",
    "runs --over-cost -1 --store good.db": "for --over-cost. Give a number from 0 on.",
    "show last --path lead/scout --store good.db": "The recording has no run 'lead/scout'. It has: analyst.",
    "show last --iteration 0 --store good.db": "--iteration 0 is none. Give a number from 1 on.",
    "show '' --store good.db": "good.db has no recording ''.",
    "show last --diff nothing --store good.db": "good.db has no recording 'nothing'.",
    "show nothing --follow --store good.db": "good.db has no recording 'nothing'.",
    "view good.db --host 0.0.0.0 --no-open": "Others can reach 0.0.0.0, and could use it: the server asks",
    "export last --out folder --force --store good.db": "folder cannot be written: ",
    "cassette test last --out notes.txt --store good.db": "notes.txt is no name for a test file.",
    "cassette test last --timeout 0 --store good.db": "for --timeout. Give a number above 0.",
    "cassette test last agents.py:nope --store good.db": "agents.py has no 'nope'.",
    "resume nothing --agent nowhere.py:x --store good.db": "good.db has no recording 'nothing'.",
    "tell x stop --store nope.db": "There is no store nope.db.",
    "tell x hold --store nope.db": "There is no store nope.db.",
    "tell x release --store nope.db": "There is no store nope.db.",
    "tell x steer hi --store good.db": "good.db has no recording 'x'.",
    "tell x approve 123456 --arguments '{' --store good.db": "--arguments is no JSON: EOF while parsing",
    "tell x approve 123456 --arguments '[]' --store good.db": "--arguments is no JSON object. Give an object:",
    "tell x approve 123456 --arguments '{}' --deny no --store good.db": "A call is denied, or made with other",
    "tell x approve 123456 --deny no --store nope.db": "There is no store nope.db.",
    "tell x answer 123456 yes --store nope.db": "There is no store nope.db.",
    "tell x approve": "approve has no word behind it. Write: journeyman tell RUN approve QUESTION",
    "tell x steer": "steer has no word behind it. Write: journeyman tell RUN steer TEXT",
    "tell x answer 123456": "answer has 1 word behind it. Write: journeyman tell RUN answer QUESTION TEXT",
    "tell x hold now": "hold has 1 word behind it. Write: journeyman tell RUN hold",
    "tell x stop not today": "stop has 2 words behind it. Write: journeyman tell RUN stop [REASON]",
    "tell x steer hi --deny no": "--deny is for approve, not for steer. Leave it out.",
    "tell x hold --at-end": "--at-end is for steer, not for hold. Leave it out.",
    "fork x --at 1/1 --agent nowhere.py --store nope.db": "There is no store nope.db.",
    "fork x --at 1/1 --id '' --store good.db": "good.db has no recording 'x'.",
    "fork x --at 0/0 --store good.db": "--at '0/0' is no place.",
    "show last --diff last --wire --store good.db": "--diff and --wire do not go together. Leave one out.",
    "prune x --store nope.db": "There is no store nope.db.",
    "worker agents.py:analyst --dispatcher nonsense --store w.db": "--dispatcher 'nonsense' is none.",
    "worker agents.py:analyst --model nonsense --store w.db": "The model name 'nonsense' is not of the form",
    "worker agents.py:analyst --timeout 0 --store w.db": "for --timeout. Give a number above 0.",
    "serve agents.py:analyst --host 0.0.0.0": "Others can reach 0.0.0.0, and could use it: the server asks",
    "serve agents.py:analyst --host 0.0.0.0 --allow-host a.example --authorize ''": ". is a folder. Name a file in it",
    "serve agents.py:analyst --allow-host ''": "--allow-host '' is no name of a machine.",
    "serve agents.py:analyst --allow-host https://example.org": "--allow-host 'https://example.org' is no name",
    "serve agents.py:analyst --store mysql://x": "there is no kind 'mysql'.",
    "serve agents.py:analyst --authorize agents.py:number": "--authorize 'agents.py:number' is an int, not a function.",
    "serve agents.py:analyst --grace nan": "for --grace. Give a number from 0 on.",
    "serve agents.py:analyst --model nonsense": "The model name 'nonsense' is not of the form",
    "serve agents.py:analyst --timeout 0": "for --timeout. Give a number above 0.",
    "serve agents.py:analyst agents.py:analyst": "2 agents are called 'analyst'.",
    "serve agents.py:analyst --port 99999": "--port 99999 is no port.",
    "mcp agents.py:analyst --http --host ''": "Others can reach all addresses, and could use it",
    "mcp agents.py:analyst --http --allow-host 'a b'": "--allow-host 'a b' is no name of a machine.",
    "mcp agents.py:analyst --model nonsense": "The model name 'nonsense' is not of the form",
    "mcp agents.py:analyst --timeout 0": "for --timeout. Give a number above 0.",
    "run agents.py:analyst hi --sandbox maybe": 'Invalid value "maybe" for --sandbox. Choose from: "auto",',
    "run agents.py:analyst hi --sandbox host:a.example": 'Invalid value "host:a.example" for --sandbox. Choose from:',
    "chat agents.py:analyst --sandbox none,auto": 'Invalid value "none,auto" for --sandbox.',
    "serve agents.py:analyst --sandbox ''": 'Invalid value "" for --sandbox.',
    "worker agents.py:analyst --sandbox socket:/x --store w.db": 'Invalid value "socket:/x" for --sandbox.',
    "run agents.py:analyst hi --allow-host 1.2.3.4": "--allow-host '1.2.3.4' is no name of a host.",
    "chat agents.py:analyst --allow-host b.example --allow-host https://a": "--allow-host 'https://a' is no name",
    "run agents.py:analyst hi --allow-host '*'": "--allow-host '*' is no name of a host.",
    "run agents.py:analyst hi --allow-host ''": "--allow-host '' is nothing that commands can be given.",
    "run agents.py:analyst hi --write ''": "--write '' is nothing that commands can be given.",
    "run agents.py:analyst hi --write /no/such": "--write '/no/such': nothing is there.",
    "run agents.py:analyst hi --write ~nobody-here/x": "--write '~nobody-here/x': nothing is there.",
    f"run agents.py:analyst hi --write {'x' * 5000}": f"--write '{'x' * 80}': nothing is there.",
    "chat agents.py:analyst --write . --write /": "A command may not change /",
    "run agents.py:analyst hi --sandbox none --write .": "more than a box, and --sandbox none says that there is none.",
    "run agents.py:analyst hi --durable --id x --write . --store w.db": "--write is not for a durable run",
    "run agents.py:analyst hi --durable --allow-host a.example --store w.db": "--allow-host is not for a durable run",
    "serve agents.py:analyst --write .": "Unknown option: --write.",
    "worker agents.py:analyst --slots 3": "--slots is called --max-concurrency now.",
    "batch agents.py:analyst narrow.csv --out out --at-once 3": "--at-once is called --max-concurrency now.",
    "mcp pin uvx mcp-server-git": "The server has no name. Give it the one that your program uses",
    "mcp pin --name '' uvx": "'' cannot be the name of a server.",
    "mcp pin nope.json": "The MCP configuration nope.json: It cannot be read: ",
    "mcp login uvx": "'uvx' is neither a file of servers nor an address.",
    "mcp login nope.json": "The MCP configuration nope.json: It cannot be read: ",
    "mcp pin --name x servers.json": "servers.json has names for its servers. Leave out --name.",
    "mcp pin --name x --pins folder nothing": "folder: the file cannot be read: ",
}
"""Words of the command line, and a part of the one line that says what is wrong; … is what the system says."""

MALFORMED: dict[str, str] = {
    "sandbox --nope": "--nope",
    "chat agents.py:analyst --mode sure": "--mode",
    "batch agents.py:analyst narrow.csv --out out --mode x": "--mode",
    "resume x --mode careful": "--mode",
    "mcp agents.py:analyst --mode x": "--mode",
    "cassette record agents.py:analyst hi --out t.jsonl --mode sure": "--mode",
    "worker agents.py:analyst --mode sure": "--mode",
    "check agents.py:analyst --timeout never": "--timeout",
    "resume nothing --timeout soon": "--timeout",
    "fork x --at 1/1 --timeout soon": "--timeout",
    "run agents.py:analyst hi --stream": "--stream",
    "run agents.py:analyst hi --quiet=maybe": "--quiet",
    "run agents.py:analyst hi -m": "-m",
    "cassette record agents.py:analyst hi --out t.jsonl -m": "-m",
    "demo -m": "-m",
    "run agents.py:analyst hi -x": "-x",
    "batch agents.py:analyst": "INPUTS",
    "cassette record agents.py:analyst hi": "--out",
    "tell": "RUN",
    "tell x": "VERB",
    "tell x deny 123456": "VERB",
    "tell x approve --deny": "--deny",
    "prune --status maybe --older-than 1d": "--status",
    "worker agents.py:analyst --max-concurrency many": "--max-concurrency",
    "runs --status lost": "--status",
    "export x --as xml": "--as",
    "completion": "SHELL",
    "completion tcsh": "SHELL",
    "--nonsense": "--nonsense",
    "batch agents.py:analyst narrow.csv --out out --order random": "--order",
    "check agents.py:analyst more": "'more'",
    "runs more": "'more'",
    "resume x more": "'more'",
    "cassette replay": "CASSETTE",
    "runs --over-cost much": "--over-cost",
    "show last --iteration first": "--iteration",
    "show last --diff": "--diff",
    "export": "RUN",
    "cassette test": "RUN",
    "view good.db --port soon": "--port",
    "cassette test last --path": "--path",
    "fork x --at 1/1 --input": "--input",
    "demo a b": "'b'",
    "run agents.py:analyst hi --record=perhaps": "--record",
    "-v": "-v",
}
"""Words that have not the form of the command's, and what the line names: the option, the argument or the word."""


def command_of(line: str) -> str:
    """Return the command that a line names, if it names one."""
    words = shlex.split(line)
    return next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), "")


def parts_of(line: str) -> list[str]:
    """Return what the one line on stderr has to hold."""
    if line in MORE:
        return MORE[line].split("…")
    return [MALFORMED[line], " ".join(["See: journeyman", *command_of(line).split(), "--help"])]


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("command", sorted({command_of(line) for line in (*MORE, *MALFORMED)}))
def test_whatever_is_wrong_on_the_command_line_is_one_line(command: str, folder: Path, warm: Warm) -> None:
    lines = [line for line in (*MORE, *MALFORMED) if command_of(line) == command]
    ended = warm(json.dumps([shlex.split(line) for line in lines]), program=SEVERAL, cwd=folder)
    assert (ended.code, ended.stderr) == (0, "")
    for line, (code, stdout, stderr) in zip(lines, json.loads(ended.stdout), strict=True):
        assert (line, stderr.count("\n")) == (line, 1), stderr
        assert_one_error_line(Done(code, stdout, stderr), 2, parts_of(line))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "cassette"])
def test_the_tables_have_bad_input_for_every_command_and_every_option_with_a_value(name: str) -> None:
    lines = [
        shlex.split(line) for line in (*MORE, *MALFORMED, *(line for line, _ in (*CASES.values(), *FAILURES.values())))
    ]
    given = [line[len(name.split()) :] for line in lines if line[: len(name.split())] == name.split()]
    assert given, f"journeyman {name} has no bad input here"
    used = {word.partition("=")[0] for line in given for word in line}
    command = app
    for word in name.split():
        command = command[word]
    shared = [
        {option, "-m" if option == "--model" else option} for option in options_taken(name) if SHARED[option].value
    ]
    own = [
        argument.names
        for argument in command.assemble_argument_collection().filter_by(parse=True)
        if not argument.is_flag()
    ]
    for names in [*shared, *own]:
        options = {each for each in names if each.startswith("-")}
        assert not options or used & options, f"journeyman {name} has no bad input for {options}"


def test_an_input_of_null_bytes_and_a_stdout_that_is_closed_are_no_tracebacks(folder: Path, warm: Warm) -> None:
    nulls = warm("run", "agents.py:analyst", cwd=folder, stdin=b"\x00\x01\x00")
    assert (nulls.code, nulls.stdout) == (0, "hi\n"), nulls.stderr
    document = warm("run", "agents.py:counter", cwd=folder, stdin=b"\x00")
    assert_one_error_line(document, 1, ["INVALID_INPUT: ", "it is not valid JSON"])
    run, completion = command("run", "agents.py:analyst", "hi"), warm.command("completion", "bash")
    for words, shut in ((run, ">&- 2>&- <&-"), (completion, "| head -c 0")):
        program = f"{shlex.join(words)} {shut}"
        done = subprocess.run(["bash", "-c", program], cwd=folder, env=environment(), capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), shut


FAILURES: dict[str, tuple[str, list[str]]] = {
    "an input that does not fit": (
        'run agents.py:counter "x"',
        ["INVALID_INPUT: The input does not fit: ", "integer", "What it takes: journeyman check agents.py:counter"],
    ),
    "an input that is no JSON": (
        "run agents.py:counter seven",
        ["INVALID_INPUT: ", "it is not valid JSON", "What it takes: journeyman check agents.py:counter"],
    ),
    "an unknown model prefix in the file": (
        "run agents.py:writer hi",
        ["MODEL_UNAVAILABLE: ", "'antropic'", "Did you mean 'anthropic:claude-sonnet-5-5'?"],
    ),
    "an unknown model prefix on the command line": (
        "run agents.py:analyst hi --model antropic:claude-sonnet-5-5",
        ["MODEL_UNAVAILABLE: ", "'antropic'", "Did you mean 'anthropic:claude-sonnet-5-5'?"],
    ),
    "a model without a prefix": (
        "run agents.py:analyst hi --model claude",
        ["MODEL_UNAVAILABLE: ", "'claude'", "such as 'anthropic:claude-"],
    ),
    "no key": (
        "run agents.py:analyst hi --model anthropic:claude-sonnet-5-5",
        ["MODEL_UNAVAILABLE: ", "There is no key", "Set the environment variable ANTHROPIC_API_KEY"],
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_run_that_cannot_begin_is_a_failure(case: str, folder: Path, warm: Warm) -> None:
    words, parts = FAILURES[case]
    done = warm(*words.split(), "--quiet", cwd=folder)
    assert_one_error_line(done, 1, parts)


async def test_a_wrong_key_is_a_failure_that_says_so_and_does_not_show_the_key(warm: Warm) -> None:
    async with MessagesApi([], bad_keys=["sk-wrong"], accept_violations=True) as api:
        env = {"ANTHROPIC_API_KEY": "sk-wrong", "ANTHROPIC_BASE_URL": api.url}
        done = await asyncio.to_thread(warm, "run", f"{AGENTS}:claude", "hi", env=env)
    assert_one_error_line(done, 1, ["API_ERROR: The model call failed (auth, status 401)", "Check the API key"])
    assert "sk-wrong" not in done.stderr


def test_a_host_that_cannot_be_reached_is_a_failure_that_says_so(warm: Warm) -> None:
    env = {"ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    done = warm("run", f"{AGENTS}:claude", "hi", env=env)
    assert_one_error_line(done, 1, ["API_ERROR: The model call failed (network)", "127.0.0.1:9", "Check the network"])
