// The left side of a run: its rows, with the time of each beside it.

import { useEffect, useRef } from "preact/hooks";
import type { Sent } from "../api";
import { count, duration, exact, money, plural, utc } from "../logic/format";
import { stepKey } from "../logic/requests";
import { type Row, titleOf } from "../logic/rows";
import type { Step, Tree } from "../logic/tree";
import { allTokens } from "../logic/values";
import { Chip, StateIcon, useWidth, useWindow } from "./parts";

export interface Scale {
  start: number;
  end: number;
  now: number | null;
}

/** Where the lines of the grid are, in seconds from the start. */
export function ticks(seconds: number, width: number): number[] {
  const most = Math.max(1, Math.floor(width / 62));
  const raw = seconds / most;
  const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-6)));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw) ?? power * 10;
  const found: number[] = [];
  for (let at = 0; at <= seconds && found.length < 40; at += step) found.push(at);
  return found;
}

function tickText(at: number, step: number, isLast: boolean): string {
  const unit = step < 1 ? `${Math.round(at * 1000)}` : step >= 60 ? `${Math.round(at / 60)}` : `${Math.round(at * 10) / 10}`;
  if (at === 0) return "0";
  return isLast ? `${unit} ${step < 1 ? "ms" : step >= 60 ? "min" : "s"}` : unit;
}

interface Given {
  tree: Tree;
  rows: Row[];
  /** The row of what is selected; -1: it is in none. */
  index: number;
  selected: string;
  requests: Map<string, Sent>;
  /** The iterations whose request did not read what it could have from the cache. */
  missed: ReadonlySet<string>;
  scale: Scale;
  isNarrow: boolean;
  choose: (row: Row) => void;
  toggle: (row: Row) => void;
}

export function TreeView({ tree, rows, index, selected, requests, missed, scale, isNarrow, choose, toggle }: Given) {
  const height = isNarrow ? 44 : 28;
  const { ref, from, to, onScroll } = useWindow(rows.length, height);
  const [outer, width] = useWidth<HTMLDivElement>();
  const isWide = width >= 560;
  const barWidth = isNarrow ? 58 : Math.max(130, Math.min(300, Math.round(width * (width >= 700 ? 0.36 : 0.22))));
  const hasBars = isWide || isNarrow;
  const last = useRef("");
  useEffect(() => {
    const element = ref.current;
    if (!element || index < 0 || last.current === selected) return;
    last.current = selected;
    const top = index * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight) element.scrollTop = top + height - element.clientHeight + 2;
  }, [index, selected, height]);
  const seconds = Math.max(scale.end - scale.start, 1e-6);
  const marks = ticks(seconds, hasBars ? barWidth - 14 : 0);
  const step = (marks[1] ?? 1) - (marks[0] ?? 0);
  const place = (at: number) => `${(100 * (at - scale.start)) / seconds}%`;
  return (
    <div class={`tree${isWide ? " wide" : ""}${hasBars ? " bars" : ""}`} ref={outer} style={{ "--bar": `${barWidth}px` }}>
      <div class="thead" aria-hidden="true">
        <span class="step">Step</span>
        {isWide && <span class="num tokens">Tokens</span>}
        {isWide && <span class="num cost">Cost</span>}
        <span class="num time">Time</span>
        {hasBars && (
          <span class="axis">
            {isNarrow && (
              <>
                <span>0</span>
                <span class="end">{duration(seconds)}</span>
              </>
            )}
            {(isNarrow ? [] : marks).map((at, n, all) => (
              <span key={n} style={{ left: place(scale.start + at) }} class={n === all.length - 1 && n ? "last" : ""}>
                {tickText(at, step, n === all.length - 1)}
              </span>
            ))}
          </span>
        )}
      </div>
      <div class="tbody" ref={ref} onScroll={onScroll} role="tree" aria-label={`Steps of ${tree.recording.agent}`} tabIndex={0} aria-activedescendant={index >= from && index < to ? `row-${index}` : undefined}>
        <div class="tall" style={{ height: `${rows.length * height}px` }} role="presentation">
          {hasBars && (
            <div class="grid" aria-hidden="true">
              {marks.map((at) => (
                <i key={at} style={{ left: place(scale.start + at) }} />
              ))}
              {scale.now !== null && <i class="now" style={{ left: place(scale.now) }} />}
            </div>
          )}
          {rows.slice(from, to).map((row, n) => (
            <RowView
              key={row.key}
              row={row}
              at={from + n}
              height={height}
              isSelected={from + n === index}
              isWide={isWide}
              isMissed={missed.has(row.step.key)}
              now={scale.now}
              bar={hasBars ? (step: Step) => <Bars step={step} place={place} requests={requests} scale={scale} isSelected={from + n === index} /> : null}
              choose={choose}
              toggle={toggle}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

interface RowGiven {
  row: Row;
  at: number;
  height: number;
  isSelected: boolean;
  isWide: boolean;
  isMissed: boolean;
  now: number | null;
  bar: ((step: Step) => preact.JSX.Element) | null;
  choose: (row: Row) => void;
  toggle: (row: Row) => void;
}

function RowView({ row, at, height, isSelected, isWide, isMissed, now, bar, choose, toggle }: RowGiven) {
  const { step, level } = row;
  const position = { transform: `translateY(${at * height}px)`, height: `${height}px` };
  const guides = Array.from({ length: level }, (_, n) => <i class="guide" key={n} style={{ left: `${17 + n * 16}px` }} />);
  const indent = { paddingLeft: `${10 + level * 16}px` };
  if (row.hidden) {
    return (
      <div class="trow more" role="treeitem" aria-level={level + 1} id={`row-${at}`} aria-selected={isSelected} style={position} onClick={() => choose(row)}>
        {guides}
        <span class="step" style={indent}>
          <span class="tri" />
          {plural(row.hidden, "more")}
        </span>
      </div>
    );
  }
  const { title, isMono, detail, isData } = titleOf(step);
  const chip = step.chip ?? row.only?.chip ?? (isMissed ? ({ text: "cache missed", look: "bad" } as const) : null);
  const isRun = step.kind === "run" || step.kind === "turn" || step.kind === "attempt" || step.kind === "ending";
  const end = step.end;
  const isBad = step.state === "failed" && (step.kind === "ending" || step.error !== null && step.kind === "iteration");
  const seconds = end !== null ? end - step.start : step.waiting && now !== null ? now - step.waiting.event.at : null;
  const tokens = step.used.requests ? allTokens(step.used) : null;
  const state = row.only && step.state === "done" ? row.only.state : step.state;
  const time = step.kind === "ending" || step.kind === "note" || (isBad && step.answered === null) ? "" : step.isLive && !step.waiting ? "" : duration(seconds);
  return (
    <div
      class={`trow${isSelected ? " selected" : ""}${row.isGrey ? " grey" : ""}${step.kind === "note" ? " note" : ""}`}
      role="treeitem"
      id={`row-${at}`}
      aria-level={level + 1}
      aria-selected={isSelected}
      {...(row.canOpen ? { "aria-expanded": row.isOpen } : {})}
      style={position}
      onClick={() => choose(row)}
      onDblClick={() => row.canOpen && toggle(row)}
    >
      {guides}
      <span class="step" style={indent}>
        <span
          class={`tri${row.canOpen ? (row.isOpen ? " open" : " closed") : ""}`}
          onClick={(event) => {
            if (!row.canOpen) return;
            event.stopPropagation();
            toggle(row);
          }}
        />
        <StateIcon state={state} isRejected={chip?.text === "rejected"} />
        {(step.kind === "iteration" || isBesideIterations(step)) && <span class="nth">{step.iteration || "\u00a0"}</span>}
        <span class={`title${isMono ? " mono" : ""}${isRun ? " strong" : ""}${isBad ? " bad" : ""}`}>{title}</span>
        {chip && <Chip chip={chip} />}
        {(step.words || detail) && <span class={`detail${isData && !step.words ? " mono" : ""}${isBad && step.kind === "ending" ? " bad" : ""}`}>{step.words || detail}</span>}
      </span>
      {isWide && (
        <>
          <span class="num tokens" title={tokens === null ? undefined : `${exact(tokens)} tokens`}>
            {tokens === null || step.kind === "ending" ? "" : count(tokens)}
          </span>
          <span class="num cost">{tokens === null || step.kind === "ending" ? "" : money(step.used.cost)}</span>
        </>
      )}
      <span class="num time" title={utc(step.start)}>
        {time}
      </span>
      {bar && <span class="bar">{bar(step)}</span>}
    </div>
  );
}

/** The ending of a run with one attempt stands below its iterations: its words begin where theirs do. */
function isBesideIterations(step: Step): boolean {
  return step.kind === "ending" && step.run.attempts.length === 1 && step.parent?.kind === "root";
}

interface BarGiven {
  step: Step;
  place: (at: number) => string;
  requests: Map<string, Sent>;
  scale: Scale;
  isSelected: boolean;
}

function Bars({ step, place, requests, scale, isSelected }: BarGiven) {
  const end = step.end ?? scale.now ?? scale.end;
  const span = (from: number, to: number) => ({ left: place(from), width: `calc(${place(to)} - ${place(from)})` });
  const look = isSelected ? " on" : "";
  if (step.waiting || step.state === "waits") {
    const asked = step.waiting?.event.at;
    if (asked !== undefined) return <b class="wait" style={span(asked, end)} />;
  }
  if (step.kind === "ending" || (step.error && step.kind === "iteration" && step.answered === null)) {
    return step.state === "failed" ? <b class="tick" style={{ left: place(step.start) }} /> : <b class="tick plain" style={{ left: place(step.start) }} />;
  }
  if (step.kind === "note") return <b class="tick plain" style={{ left: place(step.start) }} />;
  const holdsRuns = step.kind === "call" && step.children.length > 0;
  if (step.kind === "run" || step.kind === "turn" || step.kind === "attempt" || holdsRuns) {
    const failed = step.state === "failed";
    return (
      <>
        <b class={`span${failed ? " failed" : ""}${look}`} style={span(step.start, end)} />
        {failed && <b class="tick" style={{ left: place(end) }} />}
      </>
    );
  }
  if (step.kind === "call") return step.state === "failed" ? <b class="tick" style={{ left: place(end) }} /> : <b class={`tool${look}`} style={span(step.start, end)} />;
  const answered = step.answered ?? end;
  const sent = requests.get(stepKey(step.run, step.attempt, step.iteration));
  const first = sent?.answer?.["first_ms"];
  const begins = typeof first === "number" && sent ? Math.min(answered, sent.at + first / 1000) : step.start;
  return (
    <>
      {begins > step.start && <b class={`first${look}`} style={span(step.start, begins)} />}
      <b class={`model${look}`} style={span(begins, answered)} />
      {end > answered && step.children.length > 0 && <b class={`tool${look}`} style={span(answered, end)} />}
    </>
  );
}
