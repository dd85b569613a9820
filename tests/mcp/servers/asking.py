"""An MCP server made with the official SDK that asks the user, and has resources and prompts, page by page.

python asking.py older            over stdio, in the form of the protocol before 2026
python asking.py newer            over stdio, in the newer form
python asking.py older http       over HTTP, at an address that it prints
"""

import asyncio
import json
import socket
import sys
import warnings
from base64 import b64encode
from typing import Any

import uvicorn
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import UrlElicitationRequiredError

warnings.filterwarnings("ignore", message="The sampling capability is deprecated")  # what is older is still asked
IS_OLDER = sys.argv[1] == "older"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
Context = ServerRequestContext[Any]


def said(words: object) -> types.CallToolResult:
    text = words if isinstance(words, str) else json.dumps(words)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="ask", description="Asks.", input_schema={"type": "object"})])


async def call_tool(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Ask what the arguments say: `form` or `url`, with a `message`, as often as `times`, or `first` of all."""
    wanted = params.arguments or {}
    message, form, times = wanted.get("message", "Please."), wanted.get("form"), wanted.get("times", 1)
    if wanted.get("first"):
        raise UrlElicitationRequiredError(
            [types.ElicitRequestURLParams(message=message, url=wanted["url"], elicitation_id="id-1")], "log in first"
        )
    if "sample" in wanted:
        return await sample(context, params, wanted)
    if not IS_OLDER:
        return rounds(params, message, form, times)
    answers: list[object] = []
    for _ in range(times):
        try:
            answer = (
                await context.session.elicit_url(message, wanted["url"], "id-1", context.request_id)
                if form is None
                else await context.session.elicit_form(message, form, context.request_id)
            )
        except MCPError as error:
            return said([*answers, error.message])
        answers.append([answer.action, answer.content])
    return said(answers)


async def sample(
    context: Context, params: types.CallToolRequestParams, wanted: dict[str, Any]
) -> types.CallToolResult | types.InputRequiredResult:
    """Ask the model what `sample` says, as often as `times`; each answer is shown with the last."""
    question = types.CreateMessageRequestParams.model_validate(wanted["sample"])
    heard: list[object] = json.loads(params.request_state or "[]")
    for answer in (params.input_responses or {}).values():
        assert isinstance(answer, types.CreateMessageResult)
        heard.append(answer.content.model_dump()["text"])
    while len(heard) < wanted.get("times", 1):
        if not IS_OLDER:
            request = types.CreateMessageRequest(params=question)
            return types.InputRequiredResult(input_requests={"one": request}, request_state=json.dumps(heard))
        try:
            request = types.CreateMessageRequest(params=question)
            got = await context.session.send_request(request, types.CreateMessageResult)
        except MCPError as error:
            return said([*heard, error.message])
        heard.append(got.content.model_dump()["text"])
    return said(heard)


def rounds(
    params: types.CallToolRequestParams, message: str, form: dict[str, Any] | None, times: int
) -> types.CallToolResult | types.InputRequiredResult:
    """Ask as the newer protocol does: the call is made again, with the answers."""
    heard: list[object] = json.loads(params.request_state or "[]")
    for answer in (params.input_responses or {}).values():
        assert isinstance(answer, types.ElicitResult)
        heard.append([answer.action, answer.content])
    if len(heard) >= times:
        return said(heard)
    asked = (
        types.ElicitRequestURLParams(message=message, url=(params.arguments or {})["url"])
        if form is None
        else types.ElicitRequestFormParams(message=message, requested_schema=form)
    )
    return types.InputRequiredResult(
        input_requests={"one": types.ElicitRequest(params=asked)}, request_state=json.dumps(heard)
    )


def page(params: types.PaginatedRequestParams | None, n_all: int) -> tuple[range, str | None]:
    """Return the numbers on a page of two, and the cursor of the next."""
    begin = int((params and params.cursor) or 0)
    end = min(begin + 2, n_all)
    return range(begin, end), str(end) if end < n_all else None


async def list_resources(context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    numbers, cursor = page(params, 5)
    listed = [
        types.Resource(uri=f"note://{n}", name=f"note-{n}", description=f"Note {n}.", mime_type="text/plain", size=n)
        for n in numbers
    ]
    return types.ListResourcesResult(resources=listed, next_cursor=cursor)


async def list_templates(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(uri_template="note://{number}", name="note", description="A note.")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    match params.uri:
        case "note://pixel":
            given = types.BlobResourceContents(uri=params.uri, mime_type="image/png", blob=PIXEL)
        case "note://bytes":
            blob = b64encode(bytes(range(256))).decode()
            given = types.BlobResourceContents(uri=params.uri, blob=blob)
        case "note://damaged":
            given = types.BlobResourceContents(uri=params.uri, blob="no base64!")
        case "note://long":
            given = types.TextResourceContents(uri=params.uri, text="x" * 200_000)
        case uri if uri in {f"note://{number}" for number in range(5)}:
            given = types.TextResourceContents(uri=uri, mime_type="text/plain", text=f"The text of {uri}")
        case uri:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no {uri}")
    return types.ReadResourceResult(contents=[given])


async def list_prompts(context: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    numbers, cursor = page(params, 3)
    town = types.PromptArgument(name="town", description="Where.", required=True)
    names = ["greet", "draw", "plain"]
    listed = [types.Prompt(name=names[n], description=f"Prompt {n}.", arguments=[town]) for n in numbers]
    return types.ListPromptsResult(prompts=listed, next_cursor=cursor)


async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    town = (params.arguments or {}).get("town")
    if town is None:
        raise MCPError(code=types.INVALID_PARAMS, message="town is missing")
    picture = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
    messages = [
        types.PromptMessage(role="user", content=types.TextContent(type="text", text=f"Say hello to {town}.")),
        types.PromptMessage(role="assistant", content=types.TextContent(type="text", text="In which language?")),
        types.PromptMessage(role="user", content=types.TextContent(type="text", text="As they speak there:")),
        types.PromptMessage(role="user", content=picture),
    ]
    return types.GetPromptResult(messages=messages)


async def no_discovery(context: Context, params: types.RequestParams) -> types.DiscoverResult:
    raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found")


server: Server[Any] = Server(
    "asking-server",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
)
if IS_OLDER:
    server.add_request_handler("server/discover", types.RequestParams, no_discovery)


def serve_mcp_http() -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)  # noqa: T201
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listening])


async def serve_mcp_stdio() -> None:
    async with stdio_server() as (reading, writing):
        if IS_OLDER:
            await serve_loop(server, reading, writing, lifespan_state={})
        else:
            await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    serve_mcp_http() if "http" in sys.argv else asyncio.run(serve_mcp_stdio())
