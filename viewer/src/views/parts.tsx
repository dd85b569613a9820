// What every view is made of: icons, chips, folded JSON, lines of a diff, and states that say what to do.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Json } from "../api";
import { type Failed, failureOf } from "../client";
import type { Line } from "../logic/diff";
import { clock, plural } from "../logic/format";
import type { Chip as ChipOf, State } from "../logic/tree";
import { isObject } from "../logic/values";
import { go, href, type Route } from "../route";

const WORDS: Record<State, string> = { done: "done", failed: "failed", live: "live", waits: "waits for you", cancelled: "cancelled" };

/** `isRejected`: it failed a check and may be done again, which is less than a failure. */
export function StateIcon({ state, isGood = false, isRejected = false }: { state: State; isGood?: boolean; isRejected?: boolean }) {
  const isOutlined = isRejected && state === "failed";
  return (
    <svg class={`state ${state}${isGood ? " good" : ""}`} width="14" height="14" viewBox="0 0 14 14" role="img" aria-label={isOutlined ? "rejected" : WORDS[state]}>
      {state === "done" && <path d="M3 7.4 5.8 10 11 4.2" fill="none" stroke="currentColor" stroke-width="1.7" />}
      {state === "failed" && (
        <>
          <circle cx="7" cy="7" r={isOutlined ? 5.3 : 6} {...(isOutlined ? { fill: "none", stroke: "currentColor", "stroke-width": "1.4" } : { fill: "currentColor" })} />
          <path d="m4.9 4.9 4.2 4.2m0-4.2L4.9 9.1" stroke={isOutlined ? "currentColor" : "var(--bg)"} stroke-width="1.5" />
        </>
      )}
      {state === "waits" && (
        <>
          <circle cx="7" cy="7" r="6" fill="currentColor" />
          <path d="M5.5 4.6v4.8m3-4.8v4.8" stroke="var(--bg)" stroke-width="1.5" />
        </>
      )}
      {state === "live" && (
        <>
          <circle cx="7" cy="7" r="5" fill="none" stroke="var(--line2)" stroke-width="1.6" />
          <path class="spin" d="M7 2a5 5 0 0 1 5 5" fill="none" stroke="currentColor" stroke-width="1.6" />
        </>
      )}
      {state === "cancelled" && (
        <>
          <circle cx="7" cy="7" r="5.2" fill="none" stroke="currentColor" stroke-width="1.4" />
          <path d="m3.6 10.4 6.8-6.8" stroke="currentColor" stroke-width="1.4" />
        </>
      )}
    </svg>
  );
}

const SHAPES: Record<string, string> = {
  search: "M6 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8Zm3 7 3.2 3.2",
  filter: "M2 4h10M4 7h6M5.5 10h3",
  back: "M8.5 3 4.5 7l4 4",
  link: "M6 8.5 8.5 6M5.2 7.2 3.6 8.8a1.8 1.8 0 0 0 2.6 2.6l1.6-1.6M8.8 6.8l1.6-1.6a1.8 1.8 0 0 0-2.6-2.6L6.2 4.2",
  copy: "M5 5h6v6H5zM3 9V3h6",
  more: "M3 7h.01M7 7h.01M11 7h.01",
  down: "m4 5.5 3 3 3-3",
  pause: "M5 3.500v7m4-7v7",
  stop: "M4 4h6v6H4z",
};

export function Icon({ shape }: { shape: string }) {
  return (
    <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true" class={`icon i-${shape}`}>
      <path d={SHAPES[shape] ?? ""} fill={shape === "stop" ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.4" stroke-linecap="round" />
    </svg>
  );
}

export function Chip({ chip }: { chip: ChipOf }) {
  return <span class={`chip ${chip.look}${/^[A-Z_]+$/.test(chip.text) ? " mono" : ""}`}>{chip.text}</span>;
}

export function Key({ children }: { children: ComponentChildren }) {
  return (
    <kbd class="key" aria-hidden="true">
      {children}
    </kbd>
  );
}

export function To({ to, children, ...rest }: { to: Route; children: ComponentChildren; class?: string; "aria-label"?: string }) {
  const follow = (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a {...rest} href={href(to)} onClick={follow}>
      {children}
    </a>
  );
}

export function Figure({ name, children, title }: { name: string; children: ComponentChildren; title?: string }) {
  return (
    <span class="figure" title={title}>
      <span class="name">{name}</span> <span class="value">{children}</span>
    </span>
  );
}

let announcing = 0;

/** Say something to who does not see it. */
export function announce(text: string, isUrgent = false): void {
  const region = document.getElementById(isUrgent ? "urgent" : "polite");
  if (!region) return;
  window.clearTimeout(announcing);
  announcing = window.setTimeout(() => (region.textContent = text), isUrgent ? 50 : 2_000);
}

export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied.`);
  } catch {
    toast(`${what} could not be copied: the browser does not allow it here.`);
  }
}

let toasting = 0;

export function toast(text: string): void {
  const region = document.getElementById("toast");
  if (!region) return;
  region.textContent = text;
  region.hidden = false;
  window.clearTimeout(toasting);
  toasting = window.setTimeout(() => (region.hidden = true), 2_500);
}

/** Something that is shown only after a while, so that what is quick does not flicker. */
export function Loading() {
  const [isDue, set] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => set(true), 150);
    return () => window.clearTimeout(timer);
  }, []);
  if (!isDue) return <div class="loading" aria-busy="true" />;
  return (
    <div class="loading" aria-busy="true" aria-label="Loading">
      {[0, 1, 2, 3, 4, 5].map((row) => (
        <div class="ghost" key={row}>
          <i style={{ width: "14px" }} />
          <i style={{ width: `${58 - ((row * 13) % 24)}px` }} />
          <i style={{ width: `${320 - ((row * 67) % 130)}px` }} />
          <i style={{ width: `${90 + ((row * 31) % 30)}px` }} />
        </div>
      ))}
    </div>
  );
}

export function Notice({ look, children }: { look: "warn" | "sunk" | "bad"; children: ComponentChildren }) {
  return (
    <div class={`notice ${look}`} role="note">
      <p>{children}</p>
    </div>
  );
}

/** The viewer's process has not answered since a moment; what is said in `children` goes on without it. */
export function Lost({ since, again, children }: { since: number; again: () => void; children: ComponentChildren }) {
  return (
    <div class="notice sunk" role="status">
      <StateIcon state="cancelled" />
      <p>
        <b>The viewer's process does not answer.</b> What you see is as of {clock(since)}. {children}
      </p>
      <button type="button" onClick={again}>
        Try now
      </button>
    </div>
  );
}

export function Problem({ error, again }: { error: Failed; again?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <p>
        <b>{error.message}</b> {error.hint}
      </p>
      {again && (
        <button type="button" onClick={again}>
          Try now
        </button>
      )}
    </div>
  );
}

const FOLDED_LINES = 12;
const FOLDED_TEXT = 88;
const AT_ONCE = 200;

function linesOf(value: Json): number {
  if (Array.isArray(value)) return value.reduce<number>((all, each) => (all > 400 ? all : all + linesOf(each)), 2);
  if (isObject(value)) return Object.values(value).reduce<number>((all, each) => (all > 400 ? all : all + linesOf(each)), 2);
  return 1;
}

function isShort(value: Json): boolean {
  if (Array.isArray(value)) return value.length === 0 || (value.length <= 6 && value.every((each) => typeof each !== "object" && String(each).length < 20));
  return isObject(value) ? Object.keys(value).length === 0 : true;
}

/** JSON in colours, folded where it is long. */
export function JsonView({ value, name, level = 0, isLast = true, open }: { value: Json; name?: string; level?: number; isLast?: boolean; open?: boolean }) {
  const isNested = typeof value === "object" && value !== null && !isShort(value);
  const [isOpen, set] = useState(open ?? (level === 0 || linesOf(value) <= FOLDED_LINES));
  const [most, setMost] = useState(AT_ONCE);
  useEffect(() => {
    if (open !== undefined) set(open || level === 0);
  }, [open]);
  const label = name === undefined ? null : <span class="jkey">"{name}": </span>;
  const comma = isLast ? "" : ",";
  if (!isNested) {
    return (
      <div class="jline" style={{ paddingLeft: `${level * 14}px` }}>
        {label}
        <Scalar value={value} open={open} />
        {comma}
      </div>
    );
  }
  const items: [string | undefined, Json][] = Array.isArray(value) ? value.map((each) => [undefined, each]) : Object.entries(value as Record<string, Json>);
  const [start, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const size = Array.isArray(value) ? plural(items.length, "item") : plural(items.length, "key");
  return (
    <>
      <div class="jline" style={{ paddingLeft: `${level * 14}px` }}>
        {label}
        {start}
        <button type="button" class="fold" aria-expanded={isOpen} onClick={() => set(!isOpen)}>
          {isOpen ? "−" : size}
        </button>
        {!isOpen && `${end}${comma}`}
      </div>
      {isOpen && (
        <>
          {items.slice(0, most).map(([key, each], at) => (
            <JsonView key={key ?? at} value={each} {...(key === undefined ? {} : { name: key })} level={level + 1} isLast={at === items.length - 1} {...(open === undefined ? {} : { open })} />
          ))}
          {items.length > most && (
            <div class="jline" style={{ paddingLeft: `${(level + 1) * 14}px` }}>
              <button type="button" class="fold" onClick={() => setMost(most + 1000)}>
                {plural(items.length - most, "more item")}
              </button>
            </div>
          )}
          <div class="jline" style={{ paddingLeft: `${level * 14}px` }}>
            {end}
            {comma}
          </div>
        </>
      )}
    </>
  );
}

function Scalar({ value, open }: { value: Json; open?: boolean | undefined }) {
  const isLong = typeof value === "string" && value.length > FOLDED_TEXT;
  const [isOpen, set] = useState(open ?? false);
  useEffect(() => {
    if (open !== undefined) set(open);
  }, [open]);
  if (typeof value !== "string") return <span class={typeof value === "object" ? "jtext" : "jnumber"}>{JSON.stringify(value)}</span>;
  if (!isLong) return <span class="jtext">{JSON.stringify(value)}</span>;
  return (
    <span class="jtext">
      {isOpen ? <LongText text={value} /> : `${JSON.stringify(value.slice(0, FOLDED_TEXT)).slice(0, -1)}…"`}
      <button type="button" class="fold" aria-expanded={isOpen} onClick={() => set(!isOpen)}>
        {isOpen ? "−" : `${value.length.toLocaleString("en-US")} characters`}
      </button>
    </span>
  );
}

const TEXT_AT_ONCE = 30_000;

/** Text as text, more of it when it is asked for. */
export function LongText({ text, class: look = "" }: { text: string; class?: string }) {
  const [most, set] = useState(TEXT_AT_ONCE);
  if (text.length <= most) return <span class={look}>{text}</span>;
  return (
    <span class={look}>
      {text.slice(0, most)}
      <button type="button" class="fold" onClick={() => set(most * 8)}>
        {(text.length - most).toLocaleString("en-US")} more characters
      </button>
    </span>
  );
}

export function DiffLine({ line, isNumbered = false, tag }: { line: Line; isNumbered?: boolean; tag?: ComponentChildren }) {
  const look = line.sign === "+" ? "added" : line.sign === "-" ? "removed" : "context";
  return (
    <div class={`dline ${look}`}>
      {isNumbered && (
        <>
          <span class="dnumber">{line.before ?? ""}</span>
          <span class="dnumber">{line.after ?? ""}</span>
        </>
      )}
      <span class="dsign">{line.sign === " " ? "" : line.sign === "-" ? "−" : "+"}</span>
      <span class="dtext">
        {line.words ? line.words.map((word, at) => (word.isMarked ? <mark key={at}>{word.text}</mark> : word.text)) : line.text || " "}
        {tag}
      </span>
    </div>
  );
}

/** One of a few, side by side. */
export function Switch<T extends string | number>({ label, choices, at, choose }: { label: string; choices: [T, ComponentChildren][]; at: T; choose: (value: T) => void }) {
  return (
    <span class="switch" role="group" aria-label={label}>
      {choices.map(([value, name]) => (
        <button type="button" key={value} aria-pressed={at === value} onClick={() => choose(value)}>
          {name}
        </button>
      ))}
    </span>
  );
}

export interface FigureTableGiven {
  label: string;
  /** What stands in the first column. */
  first: string;
  columns: string[];
  rows: { key: string; name: ComponentChildren; figures: ComponentChildren[]; look?: string }[];
  /** The figures of all rows together. */
  all?: ComponentChildren[];
}

export function FigureTable({ label, first, columns, rows, all }: FigureTableGiven) {
  const row = ({ key, name, figures, look }: FigureTableGiven["rows"][number]) => (
    <tr key={key} class={look}>
      <th scope="row">{name}</th>
      {figures.map((each, n) => (
        <td key={n}>{each}</td>
      ))}
    </tr>
  );
  return (
    <div class="scroller" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            <th scope="col">
              <span class="sr">{first}</span>
            </th>
            {columns.map((name) => (
              <th scope="col" key={name}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{rows.map(row)}</tbody>
        {all && <tfoot>{row({ key: "all", name: "All", figures: all })}</tfoot>}
      </table>
    </div>
  );
}

/** Tabs; those that have nothing are not given. */
export function Tabs({ tabs, at, choose }: { tabs: { id: string; name: string; more?: string }[]; at: string; choose: (id: string) => void }) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = tabs[(tabs.findIndex((tab) => tab.id === at) + step + tabs.length) % tabs.length];
    if (next) {
      choose(next.id);
      document.getElementById(`tab-${next.id}`)?.focus();
    }
  };
  return (
    <div class="tabs" role="tablist" aria-label="What is shown of it" onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          type="button"
          role="tab"
          key={tab.id}
          id={`tab-${tab.id}`}
          aria-selected={tab.id === at}
          aria-controls="panel"
          tabIndex={tab.id === at ? 0 : -1}
          onClick={() => choose(tab.id)}
        >
          {tab.name} {tab.more && <span class="more">{tab.more}</span>}
        </button>
      ))}
    </div>
  );
}

/** What was asked for, once it is here or has failed. It is asked for anew whenever something of `on` changes. */
export function useAsked<T>(ask: () => Promise<T> | null, ...on: unknown[]): { value: T | null; error: Failed | null } {
  const [told, set] = useState<{ on: unknown[]; value: T | null; error: Failed | null }>({ on: [], value: null, error: null });
  useEffect(() => {
    let isHere = true;
    ask()
      ?.then((value) => isHere && set({ on, value, error: null }))
      .catch((error: unknown) => isHere && set({ on, value: null, error: failureOf(error) }));
    return () => {
      isHere = false;
    };
  }, on);
  return on.every((each, at) => each === told.on[at]) ? told : { value: null, error: null };
}

/** How wide something is, as it changes. */
export function useWidth<T extends HTMLElement>(): [preactRef<T>, number] {
  const ref = useRef<T>(null);
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    set(element.clientWidth);
    const observer = new ResizeObserver(() => set(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref as preactRef<T>, width];
}

type preactRef<T> = { current: T | null };

/** Which rows of a long list are to be there: those that are seen and, once these are, half as many above and below. */
export function useWindow(n: number, height: number): { ref: preactRef<HTMLDivElement>; from: number; to: number; onScroll: () => void } {
  const ref = useRef<HTMLDivElement>(null);
  const [seen, set] = useState({ top: 0, height: innerHeight });
  const [hasMore, setMore] = useState(false);
  const frame = useRef(0);
  const measure = () => {
    const element = ref.current;
    if (element) set((old) => (Math.abs(old.top - element.scrollTop) < height && old.height === element.clientHeight ? old : { top: element.scrollTop, height: element.clientHeight }));
  };
  useLayoutEffect(() => {
    measure();
    const element = ref.current;
    if (!element) return;
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [height]);
  useEffect(() => setMore(n > 0), [n > 0]);
  const onScroll = () => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(measure);
  };
  const more = hasMore ? Math.ceil(seen.height / 2 / height) : 0;
  const top = Math.max(0, Math.min(seen.top, n * height - seen.height));
  const from = Math.max(0, Math.floor(top / height) - more);
  const to = Math.min(n, Math.ceil((top + seen.height) / height) + more);
  return { ref: ref as preactRef<HTMLDivElement>, from, to, onScroll };
}

/** Whether the page is as narrow as a telephone. */
export function useNarrow(most = 700): boolean {
  const [is, set] = useState(() => innerWidth < most);
  useEffect(() => {
    const take = () => set(innerWidth < most);
    addEventListener("resize", take);
    return () => removeEventListener("resize", take);
  }, [most]);
  return is;
}

/** What each key does. An act answers whether it did anything; nothing means that it did. */
export type Acts = Record<string, () => boolean | void>;

const ARROWS: Record<string, string> = { ArrowDown: "j", ArrowUp: "k", ArrowRight: "l", ArrowLeft: "h" };

/** Do what a key stands for, or the letter of an arrow, and tell whether there was anything to do. */
export function act(acts: Acts, key: string): boolean {
  const found = acts[ARROWS[key] ?? key];
  return found !== undefined && found() !== false;
}

/** Take keys that nobody else wants. Fields keep theirs, but for Escape. However fast keys come, each meets what the one
 * before it has done. */
export function useKeys(take: (key: string, event: KeyboardEvent) => boolean | void): void {
  const now = useRef(take);
  now.current = take;
  useLayoutEffect(() => {
    const heard = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target as HTMLElement;
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== "checkbox" && event.key !== "Escape") return;
      if (now.current(event.key, event) === true) event.preventDefault();
    };
    addEventListener("keydown", heard);
    return () => removeEventListener("keydown", heard);
  }, []);
}
