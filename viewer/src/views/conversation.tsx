// The conversation as a reader would want it.

import { useState } from "preact/hooks";
import type { Happened, Sent } from "../api";
import { parsed, requestOf } from "../client";
import { plural } from "../logic/format";
import { curl } from "../logic/requests";
import { callText, inOrder, markdown, python, resultText } from "../logic/transcript";
import type { Tree } from "../logic/tree";
import { blocks, inOneLine, isObject, object, text } from "../logic/values";
import type { Recording } from "../recording";
import { goOn, now } from "../route";
import { ResultView, useEntire } from "./pane";
import { copy, JsonView, LongText, toast } from "./parts";

const AT_ONCE = 60;

export function Conversation({ recording, tree }: { recording: Recording; tree: Tree }) {
  const paths = [...tree.messages.keys()];
  const path = paths.includes(now()["path"] ?? "") ? (now()["path"] ?? "") : (paths[0] ?? "");
  const known = inOrder(tree.messages.get(path) ?? new Map());
  const [most, set] = useState(AT_ONCE);
  const whole = () => Promise.all(known.map((event) => recording.entire(event)));
  const lastRequest = recording.requests.findLast((sent) => sent.path.join("/") === path && sent.form === "http");
  const asCurl = async (sent: Sent) => {
    try {
      const { pieces } = await requestOf(recording.id, sent.n);
      await copy(curl(sent, pieces.map((piece) => piece.body ?? "").join("")), "The last request");
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <main class="conversation">
      <div class="filter">
        <h1>Conversation</h1>
        {paths.length > 1 && (
          <label>
            <span class="sr">Of which run</span>
            <select value={path} onChange={(event) => goOn({ path: event.currentTarget.value })}>
              {paths.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        <span class="spacer" />
        <span class="quiet wideonly">Copy as</span>
        <button type="button" onClick={() => void whole().then((all) => copy(markdown(all), "The conversation"))}>
          Markdown
        </button>
        <button type="button" onClick={() => void whole().then((all) => copy(python(all), "The conversation"))}>
          Python
        </button>
        {lastRequest && (
          <button type="button" onClick={() => void asCurl(lastRequest)}>
            cURL
          </button>
        )}
      </div>
      <div class="transcript" tabIndex={0} role="group" aria-label="Messages">
        {known.length === 0 && <p class="middle">{recording.isWhole ? "Nothing was said in this run." : ""}</p>}
        {known.slice(0, most).map((event) => (
          <Message key={event.n} event={event} recording={recording} />
        ))}
        {known.length > most && (
          <button type="button" onClick={() => set(most + AT_ONCE * 2)}>
            {plural(known.length - most, "more message")}
          </button>
        )}
      </div>
    </main>
  );
}

function Message({ event, recording }: { event: Happened; recording: Recording }) {
  const whole = useEntire(recording, event) ?? event;
  const role = text(object(whole["message"])["role"]);
  const told = blocks(whole);
  const isResult = told.length > 0 && told.every((block) => block["type"] === "tool_result");
  return (
    <article class={`message ${role}`}>
      <h2>{isResult ? "Results" : role === "assistant" ? "Assistant" : "User"}</h2>
      <div>
        {told.map((block, n) => {
          switch (block["type"]) {
            case "text":
              return (
                <p class="words" key={n}>
                  <LongText text={text(block["text"])} />
                </p>
              );
            case "thinking":
              return (
                <details class="thinking" key={n}>
                  <summary>Thinking</summary>
                  <p class="words">
                    <LongText text={text(block["text"])} />
                  </p>
                </details>
              );
            case "tool_use": {
              const given = parsed(callText(block));
              return (
                <details class="fn" key={n}>
                  <summary>
                    calls <code>{text(block["name"])}</code> <span class="quiet">{isObject(given) ? inOneLine(given) : callText(block).slice(0, 200)}</span>
                  </summary>
                  {given !== undefined ? <JsonView value={given} /> : <pre class="text">{callText(block)}</pre>}
                </details>
              );
            }
            case "tool_result": {
              const result = resultText(block);
              return (
                <details class="fn" key={n}>
                  <summary class={block["is_error"] === true ? "bad" : ""}>
                    {block["is_error"] === true ? "an error" : "result"} <span class="quiet">{result.slice(0, 200)}</span>
                  </summary>
                  <ResultView value={result} isError={block["is_error"] === true} />
                </details>
              );
            }
            default:
              return (
                <p class="quiet" key={n}>
                  {text(block["type"])}
                </p>
              );
          }
        })}
      </div>
    </article>
  );
}
