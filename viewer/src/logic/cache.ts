// Why a cache missed. Requests are compared in the order in which providers keep them, without cache marks: a mark that
// moved is shown, and never blamed.

import type { Facts, Json, Piece, Sent, Usage } from "../api.ts";
import { isObject, list, number, object, sentTokens, text, usage } from "./values.ts";

export interface Section {
  label: string;
  /** Its JSON without cache marks. */
  json: string;
  value: Json;
  /** How many marks stand in it. */
  marks: number;
}

const BEFORE = [["tools"], ["system", "instructions", "systemInstruction", "system_instruction"]];
const MESSAGES = ["messages", "input", "contents"];
const MARK = "cache_control";

export interface Whole {
  body: Json;
  sections: Section[];
  /** The request as text. */
  text: string;
}

function unmarked(value: Json): { value: Json; marks: number } {
  if (Array.isArray(value)) {
    const all = value.map(unmarked);
    return { value: all.map((each) => each.value), marks: all.reduce((n, each) => n + each.marks, 0) };
  }
  if (!isObject(value)) return { value, marks: 0 };
  let marks = 0;
  const kept: Facts = {};
  for (const [name, each] of Object.entries(value)) {
    if (name === MARK) {
      marks += 1;
      continue;
    }
    const inner = unmarked(each);
    kept[name] = inner.value;
    marks += inner.marks;
  }
  return { value: kept, marks };
}

function section(label: string, value: Json): Section {
  const inner = unmarked(value);
  return { label, json: JSON.stringify(inner.value), value, marks: inner.marks };
}

/** A request in sections, or null where its content was not kept or is no JSON. */
export function read(pieces: readonly Piece[]): Whole | null {
  if (pieces.some((piece) => piece.body === null)) return null;
  const told = pieces.map((piece) => piece.body).join("");
  let body: Json;
  try {
    body = JSON.parse(told) as Json;
  } catch {
    return null;
  }
  const fields = object(body);
  const sections: Section[] = [];
  const known = new Set<string>([...BEFORE.flat(), ...MESSAGES]);
  for (const names of BEFORE) {
    for (const name of names) {
      const value = fields[name];
      if (value === undefined || value === null) continue;
      if (name === "tools") sections.push(section("tools", value));
      else if (Array.isArray(value)) value.forEach((each, at) => sections.push(section(`${name}[${at}]`, each)));
      else sections.push(section(name, value));
    }
  }
  for (const name of MESSAGES) {
    const value = fields[name];
    if (Array.isArray(value)) value.forEach((each, at) => sections.push(section(`${name}[${at}]`, each)));
    else if (value !== undefined && value !== null) sections.push(section(name, value));
  }
  const settings = Object.entries(fields).filter(([name]) => !known.has(name));
  sections.push(section("settings", Object.fromEntries(settings)));
  return { body, sections, text: told };
}

export interface Block {
  label: string;
  tokens: number;
  kind: "same" | "lost" | "new";
}

export type Reason =
  | "time" | "tools order" | "tools" | "system" | "compaction" | "earlier message" | "expired" | "too short" | "first" | "unknown";

export interface CacheLine {
  blocks: Block[];
  /** Where the first difference is. */
  breaks: { label: string; character: number; before: string; after: string } | null;
  read: number;
  total: number;
  /** What the request before had left to be read. */
  left: number | null;
  lost: number;
  /** What the pieces predict that could be read. */
  predicted: number;
  reason: Reason | null;
  moved: { from: string[]; to: string[] } | null;
}

export const SHORTEST = 1_024;
const EXPIRES_S = 300;
const TIME = /\d{1,2}:\d{2}|\d{4}-\d{2}-\d{2}|\d{10,13}/;

/** What the provider told of a request's tokens, in the words of any of them. */
export function told(sent: Sent): Usage | null {
  const raw = object(sent.answer?.["usage"]);
  if (Object.keys(raw).length === 0) return null;
  const at = (...names: string[]): number => {
    for (const name of names) {
      const found = number(raw[name]);
      if (found !== null) return found;
    }
    return 0;
  };
  const details = object(raw["prompt_tokens_details"] ?? raw["input_tokens_details"]);
  const read = at("cache_read_input_tokens", "cachedContentTokenCount") || (number(details["cached_tokens"]) ?? 0);
  const isInside = raw["cache_read_input_tokens"] === undefined;
  const input = at("input_tokens", "prompt_tokens", "promptTokenCount");
  return {
    ...usage(undefined),
    requests: 1,
    input_tokens: isInside ? Math.max(0, input - read) : input,
    cache_read_tokens: read,
    cache_write_tokens: at("cache_creation_input_tokens"),
    output_tokens: at("output_tokens", "completion_tokens", "candidatesTokenCount"),
  };
}

function order(value: Json): string[] {
  return list(value).map((tool) => text(object(tool)["name"]) || text(object(object(tool)["function"])["name"]));
}

function differs(before: string, after: string): number {
  let at = 0;
  while (at < before.length && at < after.length && before[at] === after[at]) at += 1;
  return at;
}

/** The text at a difference, whole words of it. */
function at(textOf: string, character: number, other: string): string {
  let start = character;
  while (start > 0 && /[\w:.-]/.test(textOf[start - 1] ?? "") && character - start < 40) start -= 1;
  let end = textOf.length;
  let otherEnd = other.length;
  while (end > character && otherEnd > character && textOf[end - 1] === other[otherEnd - 1]) {
    end -= 1;
    otherEnd -= 1;
  }
  while (end < textOf.length && /[\w:-]/.test(textOf[end] ?? "") && end - character < 60) end += 1;
  return textOf.slice(start, Math.min(end, start + 80));
}

/** The places of cache marks in a request. */
function marksOf(whole: Whole): string[] {
  return whole.sections.filter((each) => each.marks > 0).map((each) => each.label);
}

/** Whether a request read clearly less than the one before it had left to be read. */
export function isMissed(before: Usage | null, used: Usage): boolean {
  const left = before ? before.cache_read_tokens + before.cache_write_tokens : 0;
  return left > 0 && used.cache_read_tokens < left * 0.8;
}

export interface Sending {
  sent: Sent;
  used: Usage | null;
}

/** Compare a request with the one before it of the same path. */
export function cacheLine(before: Whole | null, now: Whole, previous: Sending | null, current: Sending, compacted: boolean): CacheLine {
  const used = current.used ?? told(current.sent) ?? usage(undefined);
  const total = sentTokens(used) || Math.round(now.text.length / 4);
  const prompt = now.sections.filter((each) => each.label !== "settings");
  const characters = prompt.reduce((all, each) => all + each.json.length, 0) || 1;
  const tokens = (each: Section) => Math.round((total * each.json.length) / characters);
  const old = before?.sections.filter((each) => each.label !== "settings") ?? [];
  let same = 0;
  while (same < old.length && same < prompt.length && old[same]?.json === prompt[same]?.json) same += 1;
  const broken = before !== null && same < old.length;
  const known = new Set(old.slice(same).map((each) => each.json));
  let goesOn = true;
  const blocks = prompt.map((each, place): Block => {
    if (place < same) return { label: each.label, tokens: tokens(each), kind: "same" };
    goesOn = goesOn && place < old.length;
    const isLost = broken && goesOn && (known.has(each.json) || place === same);
    return { label: each.label, tokens: tokens(each), kind: isLost ? "lost" : "new" };
  });
  const usedBefore = previous ? (previous.used ?? told(previous.sent)) : null;
  const left = usedBefore ? usedBefore.cache_read_tokens + usedBefore.cache_write_tokens : null;
  const couldRead = left === null ? 0 : left;
  const missed = isMissed(usedBefore, used);
  const lost = missed ? couldRead - used.cache_read_tokens : 0;
  const predicted = broken ? blocks.filter((each) => each.kind === "same").reduce((n, each) => n + each.tokens, 0) : couldRead;
  const [one, other] = [old[same], prompt[same]];
  const breaks = broken && one ? breakOf(one, other) : null;
  const apart = previous ? current.sent.at - previous.sent.at : 0;
  const [from, to] = [before ? marksOf(before) : [], marksOf(now)];
  const goneMarks = from.filter((each) => !to.includes(each));
  const newMarks = to.filter((each) => !from.includes(each));
  return {
    blocks,
    breaks,
    read: used.cache_read_tokens,
    total,
    left,
    lost,
    predicted: predicted >= SHORTEST ? predicted : 0,
    reason: missed || (broken && before) ? reasonOf(one, other, broken, compacted, apart, total) : before ? null : "first",
    moved: before && (goneMarks.length || newMarks.length) ? { from: goneMarks, to: newMarks } : null,
  };
}

function plainText(each: Section): string {
  const value = object(each.value);
  return typeof value["text"] === "string" ? value["text"] : typeof each.value === "string" ? each.value : each.json;
}

function breakOf(one: Section, other: Section | undefined): CacheLine["breaks"] {
  const [before, after] = [plainText(one), other ? plainText(other) : ""];
  const character = differs(before, after);
  return { label: one.label, character: character + 1, before: at(before, character, after), after: at(after, character, before) };
}

function reasonOf(one: Section | undefined, other: Section | undefined, broken: boolean, compacted: boolean, apart: number, total: number): Reason {
  if (!broken) return apart > EXPIRES_S ? "expired" : total < SHORTEST ? "too short" : "unknown";
  if (compacted) return "compaction";
  if (!one || !other) return "earlier message";
  if (one.label === "tools") {
    const [was, is] = [order(one.value), order(other.value)];
    return JSON.stringify(was.toSorted()) === JSON.stringify(is.toSorted()) && was.join() !== is.join() ? "tools order" : "tools";
  }
  if (!/^(messages|input|contents)/.test(one.label)) {
    const found = breakOf(one, other);
    return found && TIME.test(found.before) && TIME.test(found.after) ? "time" : "system";
  }
  return "earlier message";
}

export const REASONS: Record<Reason, { what: string; advice: string }> = {
  time: { what: "a time in the system prompt", advice: "all after it is sent and written anew. Put the time into the user's message." },
  "tools order": { what: "the tools came in another order", advice: "Give them in the same order each time." },
  tools: { what: "the tools changed", advice: "All after them is sent anew. Keep the tools the same during a conversation, or load them when they are needed." },
  system: { what: "the system prompt changed", advice: "all after it is sent and written anew. Put what changes into the user's message." },
  compaction: { what: "compaction", advice: "The conversation was made shorter, which begins a new cache. Compact less often, and more at once." },
  "earlier message": { what: "an earlier message changed", advice: "All after it is sent anew. Add to the end of the conversation only." },
  expired: { what: "the cache had expired", advice: "More than five minutes passed since the request before. Ask for a longer life of the cache, where the provider has one." },
  "too short": { what: "too short to be kept", advice: "Providers keep prompts from about 1,024 tokens." },
  first: { what: "the first request", advice: "There was nothing to read yet." },
  unknown: { what: "not known", advice: "The requests begin alike, and the provider did not read what it could have. It may have been asked on another machine." },
};

export interface Prices {
  input: number;
  read: number;
  write: number;
  output: number;
}

/** The prices of a model in dollars a token, from what its answers used and cost; null where they do not tell. */
export function pricesFrom(used: readonly (Usage & { saved: number | null })[]): Prices | null {
  const rows: number[][] = [];
  for (const each of used) {
    if (each.cost === null) continue;
    rows.push([each.input_tokens, each.cache_read_tokens, each.cache_write_tokens, each.output_tokens, each.cost]);
    if (each.saved !== null) {
      rows.push([each.cache_read_tokens + each.cache_write_tokens, -each.cache_read_tokens, -each.cache_write_tokens, 0, each.saved]);
    }
  }
  const found = solved(rows);
  if (!found || found.some((price) => price < -1e-9)) return null;
  const [input = 0, read = 0, write = 0, output = 0] = found;
  return { input, read, write, output };
}

/** The least squares of four unknowns, or null where they are not fixed. */
function solved(rows: readonly number[][]): number[] | null {
  const n = 4;
  const table = Array.from({ length: n }, () => Array.from({ length: n + 1 }, () => 0));
  for (const row of rows) {
    for (let i = 0; i < n; i += 1) for (let j = 0; j <= n; j += 1) (table[i] as number[])[j] = (table[i]?.[j] ?? 0) + (row[i] ?? 0) * (row[j] ?? 0);
  }
  for (let i = 0; i < n; i += 1) {
    let best = i;
    for (let j = i + 1; j < n; j += 1) if (Math.abs(table[j]?.[i] ?? 0) > Math.abs(table[best]?.[i] ?? 0)) best = j;
    const pivot = table[best] as number[];
    table[best] = table[i] as number[];
    table[i] = pivot;
    const scale = pivot[i] ?? 0;
    if (Math.abs(scale) < 1e-6) return null;
    for (let j = 0; j < n; j += 1) {
      if (j === i) continue;
      const row = table[j] as number[];
      const factor = (row[i] ?? 0) / scale;
      for (let k = i; k <= n; k += 1) row[k] = (row[k] ?? 0) - factor * (pivot[k] ?? 0);
    }
  }
  return table.map((row, i) => (row[n] ?? 0) / (row[i] ?? 1));
}
