"""Who plays the lead where there is no key: it divides the question, sends out others, and reads what they hand in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape

from offline import ASKED, TOLD, Conversation, Exchange, Said, items, member, object_in, of_object, respond
from pages import Finding, LinkReport

from journeyman.model import Request, Response
from journeyman.testing import call
from journeyman.types import JsonObject

FEW_WORDS = re.compile(
    r"\b(a|an|and|are|by|does|do|for|how|in|is|it|of|on|or|say|the|their|there|they|to|what|when|about|happens?)\b"
)
NO_FINDING = "(nothing found)"


def play_lead(request: Request) -> Response:
    """Send out scouts and a checker, then a writer and a reviewer; answer; say what the checker found when told."""
    seen = Conversation.read(request.messages)
    if seen.is_answered and seen.told:
        return respond(request, [_about_check(seen.told[-1])])
    modes = ("tasks", "chain", "background")
    calls = {mode: each for each in seen.exchanges for mode in modes if mode in each.use.input}
    return respond(request, _gone_on(seen, calls) if "tasks" in calls else _sent_out(seen))


def _sent_out(seen: Conversation) -> Said:
    topics = _topics(seen.question)
    tasks = [{"agent": "scout", "task": f"{ASKED}{topic}?"} for topic in topics]
    words = f"I see {len(tasks)} topics, and send a scout for each." if len(tasks) > 1 else "I send a scout."
    if any(use.input.get("background") for use in seen.earlier):
        return [words, call("subagent", tasks=tasks)]
    check = call("subagent", agent="checker", task="Check all links.", background=True, description="check all links")
    return [f"{words} Meanwhile the links can be checked.", check, call("subagent", tasks=tasks)]


def _gone_on(seen: Conversation, calls: dict[str, Exchange]) -> Said:
    scouted = calls["tasks"]
    if scouted.result.is_error:
        return [f"My scouts could not be sent out: {scouted.result.text}"]
    steps = _chain(seen.question, scouted.value)
    checked = [each for each in seen.of("subagent") if each.use.input.get("agent") == "checker"]
    if not steps:
        return ["The pages say nothing about it, as far as my scouts could see."]
    if "chain" not in calls:
        note = call("subagent", chain=steps)
        if checked or "background" not in calls:
            return ["Now the note: one writes, one reviews.", note]
        words = "Nothing may go on in the background here, so the links are checked now. And the note is written."
        return [words, note, call("subagent", agent="checker", task="Check all links.")]
    if "error" in calls["chain"].value:
        return _again(steps, calls["chain"])
    reports = [member(each.value, "output") for each in checked if "background" not in each.use.input]
    news = [*map(_in_words, reports), *map(_about_check, seen.told)]
    return ["\n\n".join([_note(calls["chain"].value), *news])]


def _again(steps: Sequence[JsonObject], failed: Exchange) -> Said:
    """Go on with a chain from the step that failed, once."""
    results = [of_object(each) for each in items(failed.value, "results")]
    if "start_at" in failed.use.input or not results:
        return [f"The note could not be written: {failed.value.get('error')}"]
    previous = str(results[-2]["output"]) if len(results) > 1 else ""
    again = call("subagent", chain=steps, start_at=len(results), previous=previous)
    return [f"Step {len(results)} failed. I try it once more.", again]


def _topics(question: str) -> list[str]:
    """Return what a question is about: its parts, without the words that ask."""
    parts = re.split(r"[,;:?.!]|\band\b|\bor\b", question.lower())
    topics = [" ".join(re.findall(r"[\w-]+", FEW_WORDS.sub(" ", part))) for part in parts]
    return list(dict.fromkeys(topic for topic in topics if topic))[:4] or ["everything"]


def _chain(question: str, scouted: JsonObject) -> list[JsonObject]:
    """Return the steps from findings to a reviewed note; none when there is no finding."""
    lines = [line for result in items(scouted, "results") for line in _found(of_object(result))]
    if all(line.endswith(NO_FINDING) for line in lines):
        return []
    write = f"Write a note that answers: {question}\nUse nothing but these findings:\n" + "\n".join(lines)
    review = "Check every citation in this note, and hand it in as it may be read.\n\n{previous}"
    return [{"agent": "writer", "task": write}, {"agent": "reviewer", "task": review}]


def _found(result: JsonObject) -> Iterator[str]:
    topic = str(result["task"]).removeprefix(ASKED).rstrip("?")
    if result.get("is_error"):
        yield f"- {topic}: {NO_FINDING}"
        return
    findings = [Finding.model_validate(each) for each in items(member(result, "output"), "findings")]
    yield from (f"- {topic}: {finding.cited()}" for finding in findings)
    if not findings:
        yield f"- {topic}: {NO_FINDING}"


def _note(written: JsonObject) -> str:
    review = member(written, "output")
    removed = len(items(review, "removed"))
    return f"{review['note']}" + (f"\n\nThe reviewer took out {removed}." if removed else "")


def _about_check(told: str) -> str:
    """Say what a notification says."""
    fields = dict(re.findall(r"<([\w-]+)>(.*?)</\1>", told.removeprefix(TOLD), flags=re.DOTALL))
    if fields.get("status") != "completed":
        return f"The check of the links came to nothing: {unescape(fields.get('summary', ''))}"
    return _in_words(object_in(unescape(fields.get("result", ""))))


def _in_words(report: JsonObject) -> str:
    checked = LinkReport.model_validate(report)
    counts = f"{checked.links} links on {checked.pages} pages"
    if not checked.broken:
        return f"The links are checked, too: {counts}, and all of them lead somewhere."
    lines = [f"- {each.page}:{each.line} {each.target}" for each in checked.broken]
    return "\n".join([f"The links are checked, too: {counts}, of which {len(lines)} lead nowhere:", *lines])
