// One run: what stands above it, and its steps or its conversation.

import { useLayoutEffect } from "preact/hooks";
import { plural, shortId } from "../logic/format";
import { goesOn } from "../logic/tree";
import { embedded } from "../offline";
import { type Recording, useRecording } from "../recording";
import { goOn, type Route } from "../route";
import { Conversation } from "./conversation";
import { Loading, Lost, Notice, Problem, StateIcon, To } from "./parts";
import { Steps } from "./steps";
import { HelpButton, LinkButton, Where } from "./top";

export function RunPage({ route }: { route: Route }) {
  const recording = useRecording(route["run"] ?? "");
  const { run, tree, error } = recording;
  const isConversation = route["view"] === "conversation";
  useLayoutEffect(() => {
    document.title = run ? `${run.agent} · journeyman` : "journeyman";
  }, [run?.agent]);
  const top = (
    <header class="top">
      <Where name={run?.agent ?? "…"}>
        <span class="mono id" title={recording.id}>
          {shortId(recording.id)}
        </span>
      </Where>
      <span class="actions">
        {run && goesOn(run) && (
          <span class="chip accent">
            <StateIcon state="live" /> {run.status}
          </span>
        )}
        <button type="button" class="plain" onClick={() => goOn({ view: isConversation ? "" : "conversation" })}>
          {isConversation ? "Steps" : "Conversation"}
        </button>
        {!embedded && <ExportMenu id={recording.id} />}
        <LinkButton />
        <HelpButton />
      </span>
    </header>
  );
  if (!run || !tree) {
    return (
      <div class="page">
        {top}
        <main class={error ? "middle" : undefined}>
          <h1 class="sr">{error ? "This run cannot be shown" : "Loading a run"}</h1>
          {error ? (
            <>
              <Problem error={error} again={() => location.reload()} />
              <p>
                <To to={{}}>All runs</To>
              </p>
            </>
          ) : (
            <Loading />
          )}
        </main>
      </div>
    );
  }
  return (
    <div class={`page run${recording.lost ? " stale" : ""}`}>
      {top}
      <Notices recording={recording} />
      {isConversation ? <Conversation recording={recording} tree={tree} /> : <Steps recording={recording} tree={tree} route={route} />}
    </div>
  );
}

function ExportMenu({ id }: { id: string }) {
  const kinds: [string, string][] = [
    ["jsonl", "JSON lines"],
    ["markdown", "Markdown"],
    ["html", "One HTML file"],
    ["cassette", "Cassette for tests"],
  ];
  return (
    <details class="menu wideonly">
      <summary>Export</summary>
      <div class="menulist">
        {kinds.map(([as, name]) => (
          <a key={as} href={`api/runs/${encodeURIComponent(id)}/export?as=${as}`} download>
            {name}
          </a>
        ))}
      </div>
    </details>
  );
}

function Notices({ recording }: { recording: Recording }) {
  const { run, lost, gone } = recording;
  return (
    <>
      {gone && <Problem error={gone} again={() => recording.again()} />}
      {lost !== null && (
        <Lost since={lost} again={() => recording.again()}>
          Trying again; nothing is lost, the run goes on.
        </Lost>
      )}
      {run !== null && run.dropped > 0 && (
        <Notice look="warn">
          <b>{plural(run.dropped, "progress report was", "progress reports were")} not recorded</b>: the disk was slower than the run. Messages, calls and endings are complete.
        </Notice>
      )}
      {run?.why && (
        <Notice look="warn">
          <b>Recording ended before the run did:</b> {run.why}
        </Notice>
      )}
      {run !== null && !run.has_content && (
        <Notice look="sunk">
          <b>Contents were not recorded</b> (<code>content=False</code>). Sizes and digests are shown instead.
        </Notice>
      )}
    </>
  );
}
