// Paths in what a validator says, such as `findings[0].value`, and the values that they lead to.

import type { Json } from "../api.ts";
import { isObject } from "./values.ts";

const PATH = /(?<![\p{L}\p{N}_.])[A-Za-z_][\w]*(?:\[\d+\]|\.[A-Za-z_]\w*)+|(?<=^|\n)[A-Za-z_]\w*(?=:)/gu;

export interface Said {
  text: string;
  path: string | null;
}

/** The words, with the paths that lead to something in the draft. */
export function split(words: string, draft: Json): Said[] {
  const found: Said[] = [];
  let end = 0;
  for (const match of words.matchAll(PATH)) {
    if (valueAt(draft, match[0]) === undefined) continue;
    if (match.index > end) found.push({ text: words.slice(end, match.index), path: null });
    found.push({ text: match[0], path: match[0] });
    end = match.index + match[0].length;
  }
  if (end < words.length) found.push({ text: words.slice(end), path: null });
  return found;
}

export function valueAt(draft: Json, path: string): Json | undefined {
  let value: Json | undefined = draft;
  for (const step of path.match(/[A-Za-z_]\w*|\[\d+\]/g) ?? []) {
    if (step.startsWith("[")) value = Array.isArray(value) ? value[Number(step.slice(1, -1))] : undefined;
    else value = isObject(value) ? value[step] : undefined;
    if (value === undefined) return undefined;
  }
  return value;
}

/** How a value may be written in a preview. */
function written(value: Json | undefined): string[] {
  if (typeof value === "string") return value.trim() ? [value] : [];
  if (typeof value !== "number") return [];
  const told = [String(value), value.toLocaleString("en-US"), value.toLocaleString("en-US", { maximumFractionDigits: 10 })];
  for (const digits of [1, 2]) told.push(value.toFixed(digits), value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  return told;
}

export interface Part {
  text: string;
  path: string | null;
}

/** A line of a preview, with the values that the paths lead to. */
export function underlined(line: string, draft: Json, paths: readonly string[]): Part[] {
  const marks: [number, number, string][] = [];
  for (const path of paths) {
    for (const each of new Set(written(valueAt(draft, path)))) {
      for (let at = line.indexOf(each); at >= 0; at = line.indexOf(each, at + each.length)) {
        const [before, after] = [line[at - 1] ?? " ", line.slice(at + each.length, at + each.length + 2)];
        const isWhole = !/[\p{L}\p{N}.,]/u.test(before) && !/^(?:[\p{L}\p{N}]|[.,]\d)/u.test(after);
        if (isWhole && !marks.some(([start, end]) => at < end && at + each.length > start)) marks.push([at, at + each.length, path]);
      }
    }
  }
  marks.sort((one, other) => one[0] - other[0]);
  const found: Part[] = [];
  let end = 0;
  for (const [start, stop, path] of marks) {
    if (start > end) found.push({ text: line.slice(end, start), path: null });
    found.push({ text: line.slice(start, stop), path });
    end = stop;
  }
  if (end < line.length || found.length === 0) found.push({ text: line.slice(end), path: null });
  return found;
}
