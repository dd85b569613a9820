"""Who plays the crew where there is no key: one function for each of its agents. The lead is in `offline_lead.py`.

Like a language model, each is given a whole conversation and nothing else, and answers with text and calls. They
really read: what the search found, what stands in the lines, what was rejected, what the sub-agents handed in, what
was refused. They keep no state: the same conversation gets the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from pages import BrokenLink, Finding, LinkReport, anchor, led_to, links_in
from pydantic_core import from_json

from journeyman import Message, Text, ToolResult, Usage
from journeyman.model import Request, Response
from journeyman.testing import call, say
from journeyman.types import Block, JsonObject, ToolUse

Said = Sequence[str | ToolUse]

TOLD = "<background-task-completed>"
"""How notifications begin."""
ASKED = "What do the pages say about "
"""How the lead asks its scouts."""
_LONGEST_QUOTATION = 160
_PAGES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call, and what came of it."""

    use: ToolUse
    result: ToolResult

    @property
    def value(self) -> JsonObject:
        """The result, where it is a JSON object."""
        return object_in(self.result.text)


@dataclass(slots=True)
class Conversation:
    """What the messages say since the user's last question."""

    question: str = ""
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    told: list[str] = field(default_factory=list[str])
    """Notifications of which nothing was said yet."""
    is_answered: bool = False
    earlier: list[ToolUse] = field(default_factory=list[ToolUse])
    """Calls before the question."""

    @classmethod
    def read(cls, messages: Sequence[Message]) -> Conversation:
        seen = cls()
        results = {
            block.tool_use_id: block
            for message in messages
            for block in message.content
            if isinstance(block, ToolResult)
        }
        for message in messages:
            if message.role == "assistant" and not message.tool_uses:
                seen.told, seen.is_answered = [], True
            for block in message.content:
                match block:
                    case ToolUse() if block.id in results:
                        seen.exchanges.append(Exchange(block, results[block.id]))
                    case Text(text) if message.role == "user" and text.startswith(TOLD):
                        seen.told.append(text)
                    case Text(text) if message.role == "user":
                        seen.earlier += [exchange.use for exchange in seen.exchanges]
                        seen.question, seen.exchanges, seen.is_answered = text, [], False
                    case _:
                        pass
        return seen

    def of(self, name: str, *, is_error: bool = False) -> list[Exchange]:
        """Return the calls of a tool that went well, or those that did not."""
        return [each for each in self.exchanges if each.use.name == name and each.result.is_error == is_error]


def play_scout(request: Request) -> Response:
    """Search for the words of the topic, read the best lines, and hand in what stands in them."""
    seen = Conversation.read(request.messages)
    topic = seen.question.removeprefix(ASKED).rstrip("?")
    stems = [_stem(word) for word in re.findall(r"[\w-]+", topic)]
    searched = seen.of("grep")
    hits = _best(list(_hits(searched)), stems)
    if not searched:
        pattern = stems[0] if len(stems) == 1 else f"{stems[0]}.*{stems[1]}|{stems[1]}.*{stems[0]}"
        return respond(request, [call("grep", pattern=pattern, ignore_case=True, glob="*.md")])
    if not hits and len(searched) == 1 and len(stems) > 1:
        longest = max(stems, key=len)
        return respond(
            request, ["Not in one line. I look for the rarer word.", call("grep", pattern=longest, ignore_case=True)]
        )
    if hits and not seen.of("read"):
        return respond(request, [call("read", path=hit.file, offset=hit.line, limit=1) for hit in hits])
    findings = [_quoted(each) for each in seen.of("read")]
    for rejected in seen.of("hand_in", is_error=True):
        findings = [each for each in findings if each.cited() not in rejected.result.text]
    return respond(request, [call("hand_in", findings=[each.model_dump() for each in findings])])


def _stem(word: str) -> str:
    return re.sub(r"(ing|led|ed|es|s)$", "", word) if len(word) > 4 else word


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a search found."""

    file: str
    line: int
    text: str


def _hits(searched: Iterable[Exchange]) -> Iterator[Hit]:
    file = ""
    for line in "\n".join(each.result.text for each in searched).splitlines():
        number, colon, text = line.partition(":")
        if colon and number.isdigit() and file:
            yield Hit(file, int(number), text)
        elif line and not line.startswith(("[", "No line matches")):
            file = line


def _best(hits: Sequence[Hit], stems: Sequence[str]) -> list[Hit]:
    """Return three: sentences rather than tables, headings and code; of those, the lines with most of the words."""
    sentences = [hit for hit in hits if re.match(r"[A-Z*]|- ", hit.text) and len(hit.text.split()) > 8]
    n_words = {hit: sum(stem in hit.text.lower() for stem in stems) for hit in hits}
    return sorted(sentences or hits, key=lambda hit: -n_words[hit])[:3]


def _quoted(read: Exchange) -> Finding:
    """Return the line that was read, up to where it gets too long."""
    text = read.result.text.partition("\n")[0].partition("\t")[2].replace("“", "").split("”")[0].strip()
    if len(text) > _LONGEST_QUOTATION:
        text = text[:_LONGEST_QUOTATION].rpartition(" ")[0]
    return Finding(file=str(read.use.input["path"]), line=cast("int", read.use.input["offset"]), quotation=text or "-")


def play_writer(request: Request) -> Response:
    """Write one paragraph for each topic."""
    task = Conversation.read(request.messages).question
    question = re.findall(r"answers: (.*)", task)[0]
    by_topic: dict[str, list[str]] = {}
    for topic, finding in re.findall(r"^- (.+?): (.+)$", task, flags=re.MULTILINE):
        by_topic.setdefault(topic, []).append(finding)
    paragraphs = [f"On {topic}: {' '.join(findings)}" for topic, findings in by_topic.items()]
    return respond(request, ["\n\n".join([question, *paragraphs])])


def play_reviewer(request: Request) -> Response:
    """Read every cited line, and take out the citations that do not stand."""
    seen = Conversation.read(request.messages)
    note = seen.question.partition("\n\n")[2]
    cited = Finding.cited_in(note)
    if cited and not any(each.use.name == "read" for each in seen.exchanges):
        return respond(request, [call("read", path=each.file, offset=each.line, limit=1) for each in cited])
    lines = {(each.use.input["path"], each.use.input["offset"]): each.result.text for each in seen.of("read")}
    removed = [each.cited() for each in cited if each.quotation not in lines.get((each.file, each.line), "")]
    for each in removed:
        note = note.replace(each, "(a citation was taken out)")
    return respond(request, [call("hand_in", note=note, removed=removed)])


def play_checker(request: Request) -> Response:
    """List the files, look at a few pages at a time, and hand in the links that lead nowhere."""
    seen = Conversation.read(request.messages)
    listed = seen.of("glob")
    if not listed:
        return respond(request, [call("glob", pattern="**/*")])
    files = [line for line in listed[0].result.text.splitlines() if not line.startswith(("[", "No file"))]
    pages = sorted(file for file in files if file.endswith(".md"))
    looked_at = {str(each.use.input["path"]): each for each in seen.of("grep")}
    left = [page for page in pages if page not in looked_at]
    if left and len(seen.of("grep", is_error=True)) == 0:
        return respond(request, [call("grep", pattern=r"^#|\]\(", path=page) for page in left[:_PAGES_AT_ONCE]])
    return respond(request, [call("hand_in", _report(looked_at, files).model_dump())])


def _report(looked_at: dict[str, Exchange], files: Sequence[str]) -> LinkReport:
    hits = {page: list(_hits([each])) for page, each in looked_at.items()}
    anchors = {page: {anchor(hit.text) for hit in found if hit.text.startswith("#")} for page, found in hits.items()}
    n_links, broken = 0, list[BrokenLink]()
    for page, found in hits.items():
        for hit in found:
            for target in links_in(hit.text):
                file, heading = led_to(page, target)
                if file.startswith(".."):
                    continue
                n_links += 1
                if file not in files or (heading and heading not in anchors.get(file, ())):
                    broken.append(BrokenLink(page=page, line=hit.line, target=target))
    return LinkReport(pages=len(hits), links=n_links, broken=broken)


def respond(request: Request, said: Said) -> Response:
    """Answer, with an estimate of the tokens that a model would have used."""
    blocks = [Text(block) if isinstance(block, str) else block for block in said]
    read = [_words_of(block) for message in request.messages for block in message.content]
    told = [text.text for text in request.prefix.system] + [str(tool.input_schema) for tool in request.prefix.tools]
    usage = Usage(requests=1, input_tokens=_tokens(read + told), output_tokens=_tokens(map(_words_of, blocks)))
    return say(*blocks, usage=usage)


def _words_of(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case ToolUse():
            return block.input_json
        case ToolResult():
            return block.text
        case _:
            return ""


def _tokens(texts: Iterable[str]) -> int:
    """Estimate: four characters are a token."""
    return sum(len(text) for text in texts) // 4 + 1


def object_in(text: str) -> JsonObject:
    try:
        return of_object(from_json(text))
    except ValueError:
        return {}


def of_object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def member(value: JsonObject, name: str) -> JsonObject:
    return of_object(value.get(name))


def items(value: JsonObject, name: str) -> list[object]:
    found = value.get(name)
    return cast("list[object]", found) if isinstance(found, list) else []
