"""Requests that `generateContent` takes, one per feature, shaped like recorded ones."""

from tests.support.gemini_rules import DUMMIES
from tests.support.messages_json import Json

HEADERS = {"content-type": "application/json", "x-goog-api-key": "k"}
MODEL = "gemini-3-flash-preview"


def function(name: str) -> Json:
    schema: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    return {"name": name, "description": "", "parametersJsonSchema": schema}


def user(*parts: Json) -> Json:
    return {"role": "user", "parts": [*parts]}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": [*parts]}


def called(name: str, id: str | None, signature: str | None = None) -> Json:
    beside: Json = {} if id is None else {"id": id}
    signed: Json = {} if signature is None else {"thoughtSignature": signature}
    return {"functionCall": {**beside, "name": name, "args": {"n": 1}}, **signed}


def answered(name: str, id: str | None, **response: object) -> Json:
    beside: Json = {} if id is None else {"id": id}
    return {"functionResponse": {**beside, "name": name, "response": response or {"output": "1"}}}


def body(*contents: Json, **more: object) -> Json:
    return {"generationConfig": {"maxOutputTokens": 100}, "tools": [TOOLS], "contents": [*contents], **more}


TOOLS: Json = {"functionDeclarations": [function("a"), function("b")]}
SEARCH: Json = {"googleSearch": {}}
ASKED = user({"text": "Hi."})

GOOD: dict[str, Json] = {
    "plain text": body(ASKED),
    "parallel calls": body(
        ASKED,
        model({"text": "Hm.", "thought": True}, called("a", "1", "c2ln"), called("b", "2")),
        user(answered("a", "1"), answered("b", "2", error="no")),
    ),
    "without ids": body(ASKED, model(called("a", None, DUMMIES[0])), user(answered("a", None))),
    "said": body(ASKED, model({"text": "", "thoughtSignature": "dGV4dA=="}), user({"text": "Go."})),
    "hosted": body(
        ASKED,
        tools=[TOOLS, SEARCH],
        toolConfig={"includeServerSideToolInvocations": True, "functionCallingConfig": {"mode": "ANY"}},
        systemInstruction=user({"text": "Be brief."}),
    ),
    "files": body(
        user({"text": "Hi."}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}),
        generationConfig={"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}, "temperature": 1},
    ),
}
