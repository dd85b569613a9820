// The right side: what is selected, under tabs that stay while the selection moves.

import { useState } from "preact/hooks";
import type { Facts, Happened, Sent } from "../api";
import { count, duration, exact, money, percent, plural, size, utc } from "../logic/format";
import { stepKey } from "../logic/requests";
import { onlyCall, titleOf } from "../logic/rows";
import type { Step } from "../logic/tree";
import { blocks, factsOf, inOneLine, length, object, sentTokens, text, wordsOf } from "../logic/values";
import type { Recording } from "../recording";
import { goOn, href, now, type Route } from "../route";
import { DraftPane } from "./draft";
import { EndingPane } from "./ending";
import { ApprovalCard } from "./approval";
import { asked, WhoDidWhat } from "./operators";
import { type PaneGiven, ResultView, useEntire } from "./pane";
import { copy, Figure, Icon, JsonView, LongText, Notice, StateIcon, Switch, Tabs } from "./parts";
import { RequestPane } from "./request";

export interface Tab {
  id: string;
  name: string;
  more?: string;
}

function iterationOf(step: Step): Step | null {
  for (let at: Step | null = step; at; at = at.parent) if (at.kind === "iteration") return at;
  return null;
}

export function tabsOf(step: Step, requests: Map<string, Sent>): Tab[] {
  const tabs: Tab[] = [];
  const only = onlyCall(step);
  const call = step.kind === "call" ? step : only;
  const iteration = iterationOf(step);
  if (call?.draft && (call.called?.["kind"] === "output" || call.called?.["kind"] === "submit")) {
    tabs.push({ id: "preview", name: "Preview" }, { id: "output", name: "Output", more: "JSON" });
  } else if (call) tabs.push({ id: "calls", name: "Call" });
  else if (step.kind === "iteration" && step.answered !== null) {
    const n = step.children.filter((each) => each.kind === "call").length;
    tabs.push(n ? { id: "calls", name: "Calls", more: String(n) } : { id: "calls", name: "Words" });
  } else if (step.kind === "iteration") tabs.push({ id: "calls", name: step.error ? "Why" : "Now" });
  else if (step.kind === "note") tabs.push({ id: "note", name: "What happened" });
  else tabs.push({ id: "ending", name: step.kind === "ending" || step.run.ended ? "Ending" : "So far" });
  if (iteration) {
    const sent = requests.get(stepKey(iteration.run, iteration.attempt, iteration.iteration));
    if (sent) tabs.push({ id: "request", name: "Request", more: size(sent.size) });
    if (sent?.answer) tabs.push({ id: "response", name: "Response" });
  }
  const events = eventsOf(step);
  if (events.length) tabs.push({ id: "events", name: "Events", more: String(events.length) });
  return tabs;
}

function eventsOf(step: Step): Happened[] {
  const only = onlyCall(step);
  if (only) return [...step.events, ...only.events].toSorted((one, other) => one.n - other.n);
  if (step.kind === "ending" || step.kind === "run") return step.run.events;
  return step.events;
}

interface Given extends PaneGiven {
  tab: string;
  tabs: Tab[];
  route: Route;
}

export function Details(given: Given) {
  const { step, tab, tabs, tree, requests } = given;
  const only = onlyCall(step);
  const told = titleOf(step);
  const calls = step.kind === "iteration" ? step.children.filter((each) => each.kind === "call") : [];
  const iteration = iterationOf(step);
  const sent = iteration ? requests.get(stepKey(iteration.run, iteration.attempt, iteration.iteration)) : undefined;
  let title = told.title;
  if (step.kind === "iteration" && !step.title && calls.length > 1) title = `${plural(calls.length, "call")}, at the same time`;
  if (step.kind === "ending" || step.kind === "turn") title = step.error ? text(step.error["code"]) : step.kind === "turn" ? step.title : "SUCCESS";
  const code = step.kind === "ending";
  const draft = (step.kind === "call" ? step : only)?.draft ?? null;
  return (
    <article class="pane" aria-label={title}>
      <Crumbs step={step} choose={given.choose} />
      {tab === "request" ? null : (
        <div class="titlerow">
          <h2 class={`${draft ? "" : code ? `mono ${step.error ? "bad" : "good"}` : told.isMono ? "mono" : ""}`}>
            {draft ? `Draft ${draft.number} of ${step.run.drafts.length}` : title}
            {step.waiting && <span class="sans"> waits for {step.waiting.kind === "approval" ? "approval" : "an answer"}</span>}
          </h2>
          {draft?.verdict?.layers.some((layer) => layer.passed === false) && (
            <span class="chip bad strong">
              <StateIcon state="failed" isRejected /> rejected in iteration {draft.verdict.iteration}
            </span>
          )}
          <span class="spacer" />
          {draft && step.run.drafts.length > 1 && (
            <Switch
              label="Drafts"
              choices={step.run.drafts.map(({ call, number, verdict }) => [call.key, `Draft ${number} ${verdict?.layers.every((layer) => layer.passed) ? "✓" : ""}`])}
              at={draft.call.key}
              choose={given.choose}
            />
          )}
          {!draft && (
            <>
              <button type="button" class="iconbutton" aria-label="Copy as JSON" title="Copy as JSON" onClick={() => void copyEvents(given)}>
                <Icon shape="copy" />
              </button>
              <button type="button" class="iconbutton" aria-label="Copy link" title="Copy link" onClick={() => void copy(linkTo(step), "The link")}>
                <Icon shape="link" />
              </button>
            </>
          )}
        </div>
      )}
      {iteration && step.kind === "iteration" && step.used.requests > 0 && tab !== "request" && (
        <p class="figures">
          <Figure name="in">{exact(sentTokens(step.used))}</Figure>
          <Figure name="cached">
            {step.used.cache_read_tokens > 0 && count(step.used.cache_read_tokens)} <span class="name">{percent(step.used.cache_read_tokens, sentTokens(step.used))}</span>
          </Figure>
          <Figure name="out">{exact(step.used.output_tokens)}</Figure>
          <Figure name="cost">{money(step.used.cost)}</Figure>
          <Figure name="model">{sent?.model.split(":").slice(1).join(":") || step.run.model.split(":").slice(1).join(":")}</Figure>
        </p>
      )}
      {tabs.length > 1 && <Tabs tabs={tabs} at={tab} choose={(id) => goOn({ tab: id }, true)} />}
      <div class="panel" role="tabpanel" id="panel" aria-labelledby={tabs.length > 1 ? `tab-${tab}` : undefined} tabIndex={-1} key={`${tab}`}>
        {tab === "request" && sent ? (
          <RequestPane {...given} sent={sent} as={given.route["as"] ?? ""} />
        ) : tab === "response" && sent ? (
          <ResponsePane sent={sent} step={iteration} recording={given.recording} />
        ) : tab === "events" ? (
          <EventsPane events={eventsOf(step)} recording={given.recording} />
        ) : tab === "preview" && draft ? (
          <DraftPane {...given} draft={draft} />
        ) : tab === "output" && draft ? (
          <OutputPane {...given} event={draft.call.called} />
        ) : tab === "ending" ? (
          <EndingPane {...given} />
        ) : tab === "note" ? (
          <EventsPane events={step.events} recording={given.recording} />
        ) : (
          <CallsPane {...given} sent={sent} tree={tree} />
        )}
      </div>
    </article>
  );
}

function linkTo(step: Step): string {
  return new URL(href({ ...now(), at: step.key }), location.href).toString();
}

async function copyEvents({ step, recording }: PaneGiven): Promise<void> {
  const events = await Promise.all(eventsOf(step).map((event) => recording.entire(event)));
  await copy(JSON.stringify(events, null, 1), "All that happened here");
}

function Crumbs({ step, choose }: { step: Step; choose: (key: string) => void }) {
  const way: Step[] = [];
  for (let at: Step | null = step; at && at.kind !== "root"; at = at.parent) {
    if (at.kind === "run" && (at.parent?.kind === "root" || at.parent?.kind === "turn") && at !== step) continue;
    if (at.kind === "attempt" && at.run.attempts.length === 1 && at !== step) continue;
    way.unshift(at);
  }
  return (
    <p class="crumbs">
      {way.map((each, n) => (
        <span key={each.key}>
          {n > 0 && <i>›</i>}
          {each === step ? (
            nameOf(each)
          ) : (
            <button type="button" class="crumb" onClick={() => choose(each.key)}>
              {nameOf(each)}
            </button>
          )}
        </span>
      ))}
    </p>
  );
}

function nameOf(step: Step): string {
  if (step.kind === "iteration") return `iteration ${step.iteration}`;
  return step.kind === "attempt" || step.kind === "turn" || step.kind === "ending" || step.kind === "note" ? step.title.toLowerCase() : step.title;
}

function WhereTimeWent({ step, sent }: { step: Step; sent: Sent | undefined }) {
  if (step.answered === null) return null;
  const end = step.end ?? step.answered;
  const all = Math.max(end - step.start, 1e-6);
  const told = sent?.answer?.["first_ms"];
  const first = typeof told === "number" && sent ? Math.min(sent.at + told / 1000, step.answered) : null;
  const rows: { name: string; isMono: boolean; from: number; to: number; look: string }[] = [];
  if (first !== null) rows.push({ name: "First token", isMono: false, from: step.start, to: first, look: "first" });
  rows.push({ name: "Words and calls", isMono: false, from: first ?? step.start, to: step.answered, look: "model" });
  const calls = step.children.filter((each) => each.kind === "call");
  for (const call of calls.slice(0, 12)) rows.push({ name: `${call.title} ${call.detail}`, isMono: true, from: call.start, to: call.end ?? end, look: "tool" });
  return (
    <section class="times">
      <h3>
        Where its time went <span>{duration(end - step.start)}</span>
      </h3>
      {rows.map((row, n) => (
        <div class="timerow" key={n}>
          <span class={`name${row.isMono ? " mono" : ""}`}>{row.name}</span>
          <span class="track">
            <b class={row.look} style={{ left: `${(100 * (row.from - step.start)) / all}%`, width: `${(100 * (row.to - row.from)) / all}%` }} />
          </span>
          <span class="num">{duration(row.to - row.from)}</span>
        </div>
      ))}
    </section>
  );
}

function CallsPane({ step, recording, sent, choose, tree }: Given & { sent: Sent | undefined }) {
  const only = onlyCall(step);
  const calls = step.kind === "call" ? [step] : only ? [only] : step.children.filter((each) => each.kind === "call");
  const iteration = iterationOf(step);
  const said = useEntire(recording, iteration?.said ?? null);
  const order = calls.filter((call) => call.end !== null).toSorted((one, other) => (one.end ?? 0) - (other.end ?? 0));
  const told = said ? blocks(said) : [];
  const words = said ? wordsOf(said) : [];
  const thoughts = told.filter((block) => block["type"] === "thinking").map((block) => text(block["text"] ?? block["thinking"]));
  const progress = step.events.filter((event) => event.type === "ToolProgress");
  return (
    <>
      {step.error && (
        <Notice look="bad">
          <b>{text(step.error["message"])}</b> {text(step.error["hint"])}
        </Notice>
      )}
      {thoughts.filter(Boolean).map((thought, n) => (
        <details class="thinking" key={n}>
          <summary>Thinking, {plural(thought.length, "character")}</summary>
          <p class="words">
            <LongText text={thought} />
          </p>
        </details>
      ))}
      {words.filter(Boolean).length > 0 && (
        <section class="said">
          <h3>The model said</h3>
          {words.filter(Boolean).map((each, n) => (
            <p class="words" key={n}>
              <LongText text={each} />
            </p>
          ))}
        </section>
      )}
      {iteration?.words && iteration.answered === null && (
        <section class="said">
          <h3>The model says</h3>
          <p class="words">{iteration.words}</p>
        </section>
      )}
      {calls.filter((call) => call.waiting).map((call) => (
        <ApprovalCard key={asked(call)} recording={recording} step={call} />
      ))}
      {step.waiting && <WhoDidWhat recording={recording} tree={tree} />}
      {step.waiting && step.kind !== "call" && <ApprovalCard key={asked(step)} recording={recording} step={step} />}
      {step.kind === "iteration" && calls.length > 0 && <WhereTimeWent step={step} sent={sent} />}
      {calls.length > 1 && (
        <h3>
          Calls <span>in call order; done: {order.map((call) => firstArgument(call)).join(", ") || "none yet"}</span>
        </h3>
      )}
      {calls.filter((call) => !call.waiting).map((call) => (
        <CallCard key={call.key} call={call} recording={recording} choose={choose} isOne={calls.length === 1} />
      ))}
      {progress.length > 0 && (
        <section>
          <h3>Progress</h3>
          {progress.slice(-8).map((event) => (
            <p class="line" key={event.n}>
              {text(event["message"])}
            </p>
          ))}
        </section>
      )}
      {calls.length === 0 && words.length === 0 && !step.error && step.answered === null && <p class="quiet">The model has not answered yet.</p>}
    </>
  );
}

function firstArgument(call: Step): string {
  const [first] = Object.values(object(call.called?.["tool_input"]));
  return typeof first === "string" ? inOneLine({ first }).slice(0, 40) : call.title;
}

function isScalars(value: Facts): boolean {
  return Object.values(value).every((each) => typeof each !== "object" || each === null || "characters" in each);
}

const PUT_ASIDE: Record<string, string> = { held: "put aside", not_held: "could not put aside" };

function CallCard({ call, recording, choose, isOne }: { call: Step; recording: Recording; choose: (key: string) => void; isOne: boolean }) {
  const called = useEntire(recording, call.called);
  const finished = useEntire(recording, call.finished);
  const given = object(called?.["tool_input"]);
  const scalars = isScalars(given);
  const longest = Math.max(0, ...Object.values(given).map((each) => (typeof each === "string" ? each.length : 0)));
  const result = finished?.["tool_result"];
  const n = length(result);
  const gates = call.events.filter((event) => event.type === "GateDecided" && event["decision"] !== "allow");
  const refusals = call.events.filter((event) => event.type === "SandboxRefused");
  return (
    <section class={`call${call.state === "failed" ? " failed" : ""}${scalars && longest < 60 ? "" : " even"}`}>
      <header>
        <StateIcon state={call.state} isRejected={call.chip?.text === "rejected"} />
        {isOne ? (
          <b class="mono">{call.title}</b>
        ) : (
          <button type="button" class="crumb mono" onClick={() => choose(call.key)}>
            {call.title}
          </button>
        )}
        {call.chip && <span class={`chip ${call.chip.look}`}>{call.chip.text}</span>}
        <span class="spacer" />
        <span class="quiet">
          {finished ? `${plural(n, "char")} to the model` : "not finished"}&ensp;{duration(call.end === null ? null : Number(finished?.["duration_s"] ?? 0) || call.end - call.start)}
        </span>
      </header>
      <div class="sides">
        <div class="arguments">
          <h4>Arguments</h4>
          {Object.keys(given).length === 0 ? (
            <p class="quiet">none</p>
          ) : scalars ? (
            <dl>
              {Object.entries(given).map(([name, value]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd class={typeof value === "string" ? "" : "jnumber"}>
                    <LongText text={text(value)} />
                  </dd>
                </div>
              ))}
            </dl>
          ) : (
            <JsonView value={given} />
          )}
        </div>
        <div class="result">
          <h4>Result</h4>
          {gates.map((gate) => (
            <p class="bad" key={gate.n}>
              {text(gate["decision"])}: {text(gate["reason"])}
            </p>
          ))}
          {refusals.map((event) => (
            <p class="bad" key={event.n}>
              {text(event["sandbox"])} {PUT_ASIDE[text(event["cause"])] ?? "refused"} ({text(event["cause"])}): <span class="mono">{text(event["what"])}</span>
              {event["need"] ? <span class="quiet">, asked for by {text(event["need"])}</span> : null}
            </p>
          ))}
          {finished ? <ResultView value={result} isError={finished["is_error"] === true} /> : <p class="quiet">{call.words || "It is not here yet."}</p>}
        </div>
      </div>
    </section>
  );
}

function OutputPane({ event, recording }: Given & { event: Happened | null }) {
  const whole = useEntire(recording, event);
  return <JsonView value={object(whole?.["tool_input"])} open />;
}

function ResponsePane({ sent, step, recording }: { sent: Sent; step: Step | null; recording: Recording }) {
  const answer = object(sent.answer ?? {});
  const said = useEntire(recording, step?.said ?? null);
  const { usage, error_body, ...rest } = answer;
  const retries = step?.events.filter((event) => event.type === "ModelRetried") ?? [];
  return (
    <>
      {retries.map((event) => (
        <Notice look="bad" key={event.n}>
          <b>
            Request {text(event["request"])} of {text(event["max_requests"])} failed: {text(event["kind"])}.
          </b>{" "}
          {text(event["message"])}
        </Notice>
      ))}
      <h3>What came back</h3>
      <dl class="facts">
        {Object.entries(rest).map(([name, value]) => (
          <div key={name}>
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd>{typeof value === "number" && name.endsWith("_ms") ? duration(value / 1000) : text(value)}</dd>
          </div>
        ))}
      </dl>
      {error_body !== undefined && (
        <>
          <h3>The body of the error</h3>
          <ResultView value={error_body} isError />
        </>
      )}
      {usage !== undefined && (
        <>
          <h3>
            Usage <span>in the provider's own words</span>
          </h3>
          <JsonView value={usage} open />
        </>
      )}
      {said && (
        <>
          <h3>The message</h3>
          <JsonView value={said["message"] ?? null} />
        </>
      )}
    </>
  );
}

const PAGE = 100;

function EventsPane({ events, recording }: { events: Happened[]; recording: Recording }) {
  const [most, set] = useState(PAGE);
  return (
    <div class="events">
      {events.slice(0, most).map((event) => (
        <EventRow key={event.n} event={event} recording={recording} />
      ))}
      {events.length > most && (
        <button type="button" onClick={() => set(most + PAGE)}>
          {plural(events.length - most, "more event")}
        </button>
      )}
    </div>
  );
}

function EventRow({ event, recording }: { event: Happened; recording: Recording }) {
  const [isOpen, set] = useState(false);
  return (
    <details onToggle={(toggled) => set((toggled.currentTarget as HTMLDetailsElement).open)}>
      <summary>
        <span class="mono">{event.type}</span> <span class="quiet">{inOneLine(factsOf(event)).slice(0, 90)}</span>
        <span class="quiet num" title={utc(event.at)}>
          +{duration(event.at - (recording.run?.started ?? event.at))}
        </span>
      </summary>
      {isOpen && <EntireEvent event={event} recording={recording} />}
    </details>
  );
}

function EntireEvent({ event, recording }: { event: Happened; recording: Recording }) {
  const whole = useEntire(recording, event);
  return <JsonView value={whole ? factsOf(whole) : {}} />;
}
