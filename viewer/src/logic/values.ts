// Reading facts: JSON of which nothing is certain. A text may have been cut by the server, or be kept as its size only.

import type { Facts, Happened, Json, Usage } from "../api.ts";

export function isObject(value: Json | undefined): value is Facts {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function object(value: Json | undefined): Facts {
  return isObject(value) ? value : {};
}

export function list(value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : [];
}

export function number(value: Json | undefined): number | null {
  return typeof value === "number" ? value : null;
}

/** A text, what there is of one that was cut, or the size of one that was not kept. */
export function text(value: Json | undefined): string {
  if (typeof value === "string") return value;
  if (isObject(value)) {
    if (typeof value["cut"] === "string") return value["cut"];
    if (typeof value["characters"] === "number") return `[${value["characters"].toLocaleString("en-US")} characters, not kept]`;
  }
  return value === undefined || value === null ? "" : JSON.stringify(value);
}

/** How long a text is, in characters, though it may not be all here. */
export function length(value: Json | undefined): number {
  if (isObject(value) && typeof value["characters"] === "number") return value["characters"];
  return text(value).length;
}

/** Whether anything in these facts was cut, so that all of it is worth asking for. */
export function isCut(value: Json | undefined): boolean {
  if (Array.isArray(value)) return value.some(isCut);
  if (!isObject(value)) return false;
  return typeof value["cut"] === "string" && typeof value["characters"] === "number" ? true : Object.values(value).some(isCut);
}

const COUNTS = ["requests", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"] as const;

/** A usage of which each figure but the cost is told by `of`. */
function counted(of: (name: (typeof COUNTS)[number]) => number, cost: number | null): Usage {
  return { ...(Object.fromEntries(COUNTS.map((name) => [name, of(name)])) as unknown as Usage), cost };
}

export const NOTHING = counted(() => 0, 0);

export function usage(value: Json | undefined): Usage {
  const told = object(value);
  return counted((name) => number(told[name]) ?? 0, number(told["cost"]) ?? (number(told["requests"]) ? null : 0));
}

export function sum(one: Usage, other: Usage): Usage {
  return counted((name) => one[name] + other[name], one.cost === null || other.cost === null ? null : one.cost + other.cost);
}

/** What went in, cached or not. */
export function sentTokens(used: Usage): number {
  return used.input_tokens + used.cache_read_tokens + used.cache_write_tokens;
}

export function allTokens(used: Usage): number {
  return sentTokens(used) + used.output_tokens;
}

const PLACE = new Set(["n", "at", "type", "path", "attempt", "iteration", "tool_use_id", "tool_name"]);

/** What an event says beside where and when it happened. */
export function factsOf(event: Happened): Facts {
  return Object.fromEntries(Object.entries(event).filter(([name]) => !PLACE.has(name)));
}

/** The blocks of a message that was committed. */
export function blocks(event: Happened): Facts[] {
  return list(object(event["message"])["content"]).map(object);
}

/** The texts of a message that was committed. */
export function wordsOf(event: Happened): string[] {
  return blocks(event).flatMap((block) => (block["type"] === "text" ? [text(block["text"])] : []));
}

/** Arguments as one line: their values, the short ones first as they come. */
export function inOneLine(given: Json | undefined): string {
  if (!isObject(given)) return given === undefined || given === null ? "" : text(given);
  const told: string[] = [];
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "string") told.push(value.replace(/\s+/g, " "));
    else if (typeof value === "number") told.push(String(value));
    else if (typeof value === "boolean") told.push(value ? name : `no ${name}`);
    else if (isObject(value) && "characters" in value) told.push(text(value));
    if (told.join(" ").length > 200) break;
  }
  return told.join(" ").slice(0, 240);
}

export { firstLine as firstOf } from "./format.ts";
