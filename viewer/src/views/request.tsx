// A request as it was sent: how much of it was read from the cache, where that broke and why, and what changed.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Piece, Sent, SentWhole } from "../api";
import { type Failed, failureOf, requestOf } from "../client";
import { type CacheLine, cacheLine, isMissed, pricesFrom, read, REASONS, SHORTEST, told, type Whole } from "../logic/cache";
import { around, lines } from "../logic/diff";
import { count, exact, money, percent, plural, size } from "../logic/format";
import { curl, requestsByStep } from "../logic/requests";
import type { Tree } from "../logic/tree";
import { list, number, object, sentTokens, text, usage } from "../logic/values";
import type { Recording } from "../recording";
import { goOn } from "../route";
import type { PaneGiven } from "./pane";
import { act, copy, DiffLine, JsonView, Key, LongText, Notice, Problem, Switch, useKeys } from "./parts";

const kept = new Map<string, Promise<SentWhole>>();

function piecesOf(recording: Recording, n: number): Promise<SentWhole> {
  const key = `${recording.id}/${n}`;
  let known = kept.get(key);
  if (!known) {
    known = requestOf(recording.id, n);
    known.catch(() => kept.delete(key));
    kept.set(key, known);
    if (kept.size > 8) kept.delete(kept.keys().next().value as string);
  }
  return known;
}

function useWhole(recording: Recording, n: number | null): { whole: Whole | null; pieces: Piece[]; error: Failed | null; isHere: boolean } {
  const [found, set] = useState<{ n: number | null; whole: Whole | null; pieces: Piece[]; error: Failed | null }>({ n: null, whole: null, pieces: [], error: null });
  useEffect(() => {
    if (n === null) return;
    let isHere = true;
    piecesOf(recording, n)
      .then(({ pieces }) => isHere && set({ n, whole: read(pieces), pieces, error: null }))
      .catch((error: unknown) => isHere && set({ n, whole: null, pieces: [], error: failureOf(error) }));
    return () => {
      isHere = false;
    };
  }, [n, recording]);
  return { ...found, isHere: found.n === n };
}

interface Given extends PaneGiven {
  sent: Sent;
  as: string;
}

/** The requests of one path, over turns, and what each used. */
export function samePath(requests: readonly Sent[], sent: Sent): Sent[] {
  const path = sent.path.join("/");
  return requests.filter((each) => each.path.join("/") === path);
}

export function usedBy(tree: Tree, requests: readonly Sent[]): Map<number, ReturnType<typeof usage>> {
  const found = new Map<number, ReturnType<typeof usage>>();
  const known = requestsByStep(tree, requests);
  for (const [key, sent] of known) {
    const step = tree.steps.get(key);
    if (step && step.used.requests) found.set(sent.n, step.used);
  }
  return found;
}

export function RequestPane({ sent, step, tree, recording, as, choose }: Given) {
  const all = useMemo(() => samePath(recording.requests, sent), [recording.requests, sent.n]);
  const used = useMemo(() => usedBy(tree, recording.requests), [tree.version, recording.requests]);
  const at = all.findIndex((each) => each.n === sent.n);
  const previous = all[at - 1] ?? null;
  const now = useWhole(recording, sent.n);
  const before = useWhole(recording, previous?.n ?? null);
  const usedOf = (each: Sent) => told(each) ?? used.get(each.n) ?? null;
  const compacted = tree.compactions.some((each) => previous && each.at >= previous.at && each.at <= sent.at && each.path.join("/") === sent.path.join("/"));
  const isReady = now.isHere && (previous === null || before.isHere);
  const line = useMemo(
    () => (isReady && now.whole ? cacheLine(previous ? before.whole : null, now.whole, previous ? { sent: previous, used: usedOf(previous) } : null, { sent, used: usedOf(sent) }, compacted) : null),
    [now.whole, before.whole, isReady, sent.n],
  );
  const views = ["json", ...(previous ? ["changes"] : []), "bytes"];
  const view = views.includes(as) ? as : previous && line?.breaks ? "changes" : "json";
  const nameOf = (each: string) => (each === "json" ? "Request" : each === "bytes" ? "Bytes" : <>Changes since request {at} {view === "changes" && <Key>d</Key>}</>);
  const [isOpen, setOpen] = useState<boolean | undefined>(undefined);
  const url = text(sent.around["url"]);
  const steps = useMemo(() => stepsBySent(tree, recording.requests), [tree.version, recording.requests]);
  useKeys((key) => act({ O: () => setOpen((open) => !open), n: () => jump(1), N: () => jump(-1) }, key));
  return (
    <>
      <div class="titlerow request">
        <h2>
          Request {at + 1} of {all.length}
          <span class="sub">
            {url ? `POST ${new URL(url, location.href).pathname} · ` : "not over our wire · "}
            {exact(sent.size)} bytes{now.pieces.length ? ` · ${plural(now.pieces.length, "piece")}` : ""}
          </span>
        </h2>
        <span class="spacer" />
        {url && (
          <button type="button" class="plain" onClick={() => void copy(curl(sent, now.whole?.text ?? ""), "The request")}>
            Copy as cURL
          </button>
        )}
      </div>
      <div class="cards" role="group" aria-label="Requests of this run" tabIndex={0}>
        {windowOf(all, at).map((each) => (
          <Card key={each.n} each={each} nth={all.indexOf(each)} previous={all[all.indexOf(each) - 1] ?? null} usedOf={usedOf} isHere={each.n === sent.n} choose={() => choose(steps.get(each.n) ?? step.key)} />
        ))}
      </div>
      {now.error && <Problem error={now.error} />}
      {line && <CachePane line={line} tree={tree} sent={sent} nth={at} />}
      {isReady && !now.whole && now.pieces.length > 0 && (
        <Notice look="sunk">
          <b>The content of this request was not kept.</b> {plural(now.pieces.length, "piece")}: {now.pieces.slice(0, 12).map((piece) => size(piece.size)).join(", ")}.
        </Notice>
      )}
      {now.whole && (
        <section class="body">
          <header>
            <Switch label="How it is shown" choices={views.map((each) => [each, nameOf(each)])} at={view} choose={(as) => goOn({ as }, true)} />
            <span class="spacer" />
            {view === "changes" && line && <span class="quiet">{inShort(line, before.whole, now.whole)}</span>}
            {view !== "bytes" && (
              <button type="button" class="plain" onClick={() => setOpen(!isOpen)}>
                {isOpen ? "Fold" : "Unfold"}
              </button>
            )}
          </header>
          <div class="code" tabIndex={0} role="group" aria-label="The request">
            {view === "json" ? (
              <JsonView value={now.whole.body} {...(isOpen === undefined ? {} : { open: isOpen })} />
            ) : view === "bytes" ? (
              <pre class="text">
                <LongText text={now.whole.text} />
              </pre>
            ) : line && before.whole ? (
              <Changes before={before.whole} now={now.whole} line={line} isOpen={isOpen === true} />
            ) : null}
          </div>
        </section>
      )}
    </>
  );
}

function jump(by: number): boolean {
  const all = [...document.querySelectorAll<HTMLElement>(".code .added, .code .removed")];
  const top = document.querySelector(".pane .panel")?.getBoundingClientRect().top ?? 0;
  const next = by > 0 ? all.find((each) => each.getBoundingClientRect().top > top + 60) : all.findLast((each) => each.getBoundingClientRect().top < top - 4);
  next?.scrollIntoView({ block: "center" });
  return next !== undefined;
}

function stepsBySent(tree: Tree, requests: readonly Sent[]): Map<number, string> {
  return new Map([...requestsByStep(tree, requests)].map(([key, sent]) => [sent.n, key]));
}

/** Some of many cards: those around the one that is looked at. */
function windowOf(all: readonly Sent[], at: number): Sent[] {
  const start = Math.max(0, Math.min(at - 20, all.length - 40));
  return all.slice(start, start + 40);
}

interface CardGiven {
  each: Sent;
  nth: number;
  previous: Sent | null;
  usedOf: (sent: Sent) => ReturnType<typeof usage> | null;
  isHere: boolean;
  choose: () => void;
}

function Card({ each, nth, previous, usedOf, isHere, choose }: CardGiven) {
  const used = usedOf(each);
  const total = used ? sentTokens(used) : 0;
  const missed = used !== null && previous !== null && isMissed(usedOf(previous), used);
  const failed = each.answer !== null && each.answer["error"] !== undefined;
  const state = failed ? "failed" : !used ? "no figures" : missed ? "missed" : used.cache_read_tokens > 0 ? `${percent(used.cache_read_tokens, total)} cached` : used.cache_write_tokens > 0 ? "written" : total < SHORTEST ? "too short" : "not cached";
  return (
    <button type="button" class={`card${isHere ? " here" : ""}${missed || failed ? " missed" : ""}`} aria-current={isHere ? "true" : undefined} onClick={choose}>
      <span class="row">
        <b>{nth + 1}</b>
        <span>{used ? count(total) : size(each.size)}</span>
      </span>
      <span class="track">
        <b style={{ width: missed ? "100%" : `${total ? (100 * (used?.cache_read_tokens ?? 0)) / total : 0}%` }} />
      </span>
      <span class="state">{state}</span>
    </button>
  );
}

function pricesOf(tree: Tree, model: string) {
  const used = [];
  for (const run of tree.runs) {
    for (const attempt of run.attempts) {
      for (const iteration of attempt.children) {
        const answer = iteration.events.find((event) => event.type === "ModelResponded");
        if (!answer || !model.endsWith(text(answer["model"]))) continue;
        const facts = object(answer["usage"]);
        used.push({ ...usage(facts), saved: number(facts["cache_saved"]) });
      }
    }
  }
  return pricesFrom(used);
}

function CachePane({ line, tree, sent, nth }: { line: CacheLine; tree: Tree; sent: Sent; nth: number }) {
  const total = line.blocks.reduce((all, block) => all + block.tokens, 0) || 1;
  const prices = line.lost > 0 ? pricesOf(tree, sent.model) : null;
  const wrote = (told(sent)?.cache_write_tokens ?? 0) > 0;
  const paid = prices ? (wrote ? prices.write : prices.input) : null;
  const extra = prices && paid !== null ? line.lost * (paid - prices.read) : null;
  const reason = line.reason ? REASONS[line.reason] : null;
  const isMissed = line.lost > 0;
  let offset = 0;
  const flag = line.breaks ? line.blocks.filter((block) => block.kind === "same").reduce((all, block) => all + block.tokens, 0) / total : null;
  return (
    <section class="cache" aria-label="Cache">
      <h3>
        Cache{" "}
        <span>
          read {exact(line.read)} of {exact(line.total)} tokens{line.left !== null && nth > 0 ? `; request ${nth} had left ${exact(line.left)} to be read` : ""}
          {isMissed && line.predicted > 0 ? `; the pieces predict ${exact(line.predicted)}` : ""}
        </span>
        <span class="legend">
          <i class="same" /> same, could be read <i class="lost" /> lost <i class="new" /> new
        </span>
      </h3>
      <div class="flagrow">
        {flag !== null && (
          <span class="flag" style={flag > 0.7 ? { right: `${100 * (1 - flag)}%` } : { left: `${100 * flag}%` }} data-side={flag > 0.7 ? "left" : "right"}>
            breaks at <code>{line.breaks?.label}</code>, character {line.breaks?.character}
          </span>
        )}
      </div>
      <div class="pieces" role="img" aria-label={`${line.blocks.length} parts: ${line.blocks.filter((block) => block.kind === "same").length} the same, ${line.blocks.filter((block) => block.kind === "lost").length} lost, ${line.blocks.filter((block) => block.kind === "new").length} new`}>
        {merged(line.blocks).map((block, at) => {
          offset += block.tokens;
          return <i key={at} class={block.kind} style={{ flexGrow: Math.max(block.tokens, total / 400) }} title={`${block.label}: about ${exact(block.tokens)} tokens`} />;
        })}
      </div>
      <div class="labels" aria-hidden="true">
        {placed(line.blocks, total).map((each) => (
          <span key={each.label} style={{ left: `${each.left}%` }}>
            {each.label}
          </span>
        ))}
      </div>
      {reason && line.reason !== "first" && (isMissed || line.breaks) && (
        <div class="reason">
          <p>
            <span>Likely</span> <b>{reason.what}</b>
          </p>
          {extra !== null && extra > 0 && (
            <p class="price bad">
              <b>+{money(extra)}</b>
            </p>
          )}
          <p>
            {line.breaks && (line.reason === "time" || line.reason === "system") && (
              <>
                <code>
                  <mark class="removed">{line.breaks.before}</mark>
                </code>{" "}
                became{" "}
                <code>
                  <mark class="added">{line.breaks.after}</mark>
                </code>
                :{" "}
              </>
            )}
            {reason.advice}
          </p>
          <p class="price">
            {extra !== null && prices && paid !== null
              ? `${exact(line.lost)} tokens at $${(paid * 1e6).toFixed(2)}, not $${(prices.read * 1e6).toFixed(2)} per M`
              : isMissed
                ? `${exact(line.lost)} tokens; what that cost is not known`
                : ""}
          </p>
        </div>
      )}
    </section>
  );
}

/** Neighbours of one kind as one, where there are very many. */
function merged(blocks: CacheLine["blocks"]): CacheLine["blocks"] {
  if (blocks.length <= 160) return blocks;
  const found: CacheLine["blocks"] = [];
  for (const block of blocks) {
    const last = found[found.length - 1];
    if (last && last.kind === block.kind && found.length > 8) last.tokens += block.tokens;
    else found.push({ ...block });
  }
  return found;
}

function placed(blocks: CacheLine["blocks"], total: number): { label: string; left: number }[] {
  const found: { label: string; left: number }[] = [];
  let at = 0;
  let free = 0;
  for (const block of blocks) {
    const left = (100 * at) / total;
    at += block.tokens;
    const wide = (100 * block.tokens) / total;
    const isBig = wide > 16;
    if (left < free || wide < 5 || (!isBig && hasBigSoon(blocks, block, total))) continue;
    found.push({ label: isBig ? `${block.label} · ${exact(block.tokens)}` : block.label, left });
    free = left + (isBig ? 18 : 11);
  }
  return found;
}

/** Whether the label of a big block would be pushed away by the label of this small one before it. */
function hasBigSoon(blocks: CacheLine["blocks"], block: CacheLine["blocks"][number], total: number): boolean {
  let gone = 0;
  for (const each of blocks.slice(blocks.indexOf(block))) {
    if (each !== block && (100 * each.tokens) / total > 16) return true;
    gone += (100 * each.tokens) / total;
    if (gone > 11) return false;
  }
  return false;
}

function inShort(line: CacheLine, before: Whole | null, now: Whole): string {
  if (!before) return "";
  const known = new Map(before.sections.map((each) => [each.label, each]));
  const changed = now.sections.filter((each) => known.has(each.label) && known.get(each.label)?.json !== each.json).length;
  const added = now.sections.filter((each) => !known.has(each.label)).length;
  const parts = [changed ? plural(changed, "change") : "nothing changed"];
  if (added) parts.push(`${plural(added, "message")} added`);
  if (line.moved) parts.push(`${plural(Math.max(line.moved.from.length, line.moved.to.length), "cache mark")} moved`);
  return parts.join(", ");
}

function summary(value: unknown, most = 100): string {
  const told = object(value as never);
  const content = told["content"] ?? told["parts"];
  const role = text(told["role"] ?? told["type"]);
  if (typeof content === "string") return `${role} ${JSON.stringify(content.length > most ? `${content.slice(0, most)}…` : content)}`;
  const first = list(content).map(object);
  const words = first.map((each) => text(each["text"])).find(Boolean);
  const kinds = first.map((each) => text(each["type"])).filter((each) => each && each !== "text");
  return `${role} ${words ? JSON.stringify(words.length > most ? `${words.slice(0, most)}…` : words) : kinds.join(" ")}`;
}

/** A section of a request: one that is only in one of two, or stands in both. */
function SectionLine({ sign, label, children }: { sign: "+" | "−" | ""; label: string; children: ComponentChildren }) {
  return (
    <div class={`dline ${sign === "+" ? "added" : sign ? "removed" : "context"}`}>
      <span class="dsign">{sign}</span>
      <span class="dtext">
        <span class="tag">{label}</span> {children}
      </span>
    </div>
  );
}

function Changes({ before, now, line, isOpen }: { before: Whole; now: Whole; line: CacheLine; isOpen: boolean }) {
  const known = new Map(before.sections.map((each) => [each.label, each]));
  const labels = new Set(now.sections.map((each) => each.label));
  const tokens = new Map(line.blocks.map((each) => [each.label, each]));
  const gone = before.sections.filter((each) => !labels.has(each.label));
  return (
    <div class="changes">
      {[...now.sections.filter((each) => each.label === "settings"), ...now.sections.filter((each) => each.label !== "settings")].map((each) => {
        const old = known.get(each.label);
        const block = tokens.get(each.label);
        const mark = line.moved?.from.includes(each.label) ? `cache mark moved to ${line.moved.to.join(", ") || "nowhere"}` : line.moved?.to.includes(each.label) ? "cache mark" : null;
        const tag = (
          <>
            {block && <span class="tag">{old?.json === each.json ? `same, ${plural(block.tokens, "token")}${block.kind === "lost" ? ", sent uncached" : ""}` : plural(block.tokens, "token")}</span>}
            {mark && <span class="tag accent">{mark}</span>}
          </>
        );
        if (old && old.json === each.json && !isOpen) {
          return (
            <SectionLine sign="" label={each.label} key={each.label}>
              {/^(messages|input|contents)/.test(each.label) ? summary(each.value) : each.label === "settings" ? each.json.slice(1, -1).replaceAll(/,(?=")/g, ", ").slice(0, 120) : ""} {tag}
            </SectionLine>
          );
        }
        const strip = (value: string) => JSON.stringify(JSON.parse(value), null, 2);
        if (!old) {
          return (
            <SectionLine sign="+" label={each.label} key={each.label}>
              {isOpen ? strip(each.json) : summary(each.value, 400)} {tag}
            </SectionLine>
          );
        }
        const found = lines(strip(old.json), strip(each.json));
        return (
          <div class="changed" key={each.label}>
            <SectionLine sign="" label={each.label}>
              {tag}
            </SectionLine>
            {(isOpen ? found : around(found, 2)).map((one, at) => (one ? <DiffLine key={at} line={one} /> : <div class="dline context" key={at}><span class="dsign" /><span class="dtext">…</span></div>))}
          </div>
        );
      })}
      {gone.map((each) => (
        <SectionLine sign="−" label={each.label} key={each.label}>
          {summary(each.value)}
        </SectionLine>
      ))}
    </div>
  );
}
