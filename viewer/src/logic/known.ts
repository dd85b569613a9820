// What a run knows of a file by what it has done to it: the lines that it has read, as its own edits have left them. An
// edit is only made in a file that was read, and that nobody has changed since: so these are the lines around it.

import type { Facts } from "../api.ts";
import { type Line, lines } from "./diff.ts";
import { text } from "./values.ts";

/** The lines of a file by their numbers, from 1. */
export type Known = Map<number, string>;

/** A call that succeeded. */
export interface Deed {
  tool: string;
  args: Facts;
  result: string;
}

export interface Change {
  /** Each place of the change, with the lines around it. */
  places: Line[][];
  /** At so many more places the old text stands. */
  others: number;
}

const NUMBERED = /^(\d+)\t(.*)$/;
const AROUND = 3;
const MOST_PLACES = 3;

export function isSamePath(one: string, other: string): boolean {
  const plain = (path: string) => path.split("/").filter((name) => name !== "" && name !== ".").join("/");
  return one.startsWith("/") === other.startsWith("/") && plain(one) === plain(other);
}

function plain(told: string): string {
  return told.replaceAll("\r\n", "\n");
}

export function isEvery(args: Facts): boolean {
  return args["replace_all"] === true;
}

/** What is known after these calls on one file, in their order. */
export function knownAfter(deeds: readonly Deed[]): Known {
  let known: Known = new Map();
  for (const { tool, args, result } of deeds) {
    if (tool === "write") known = new Map(plain(text(args["content"])).replace(/\n$/, "").split("\n").map((line, at) => [at + 1, line]));
    else if (tool === "edit") known = edited(known, plain(text(args["old_text"])), plain(text(args["new_text"])), isEvery(args), result);
    else known = read(known, result);
  }
  return known;
}

function numbered(result: string): Known {
  const found: Known = new Map();
  for (const line of result.split("\n")) {
    const [, number, told] = NUMBERED.exec(line) ?? [];
    if (number !== undefined && told !== undefined) found.set(Number(number), told);
  }
  return found;
}

function read(known: Known, result: string): Known {
  const seen = numbered(result);
  const isOther = [...seen].some(([number, line]) => known.has(number) && known.get(number) !== line);
  return new Map([...(isOther ? [] : known), ...seen]); // where it differs, somebody has changed the file
}

function edited(known: Known, before: string, after: string, isAll: boolean, result: string): Known {
  const places = placesOf(known, before);
  if (places.length === 0 || (places.length > 1 && !isAll)) return numbered(result); // it was found in another way
  const next: Known = new Map();
  let moved = 0;
  for (const piece of piecesOf(known)) {
    const inside = placesIn(piece, before);
    const told = inside.length ? piece.text.replaceAll(before, () => after).split("\n") : piece.text.split("\n");
    told.forEach((line, at) => next.set(piece.first + moved + at, line));
    moved += told.length - piece.text.split("\n").length;
  }
  return next;
}

interface Piece {
  /** The number of its first line. */
  first: number;
  text: string;
}

/** Lines that follow each other, as texts. */
function piecesOf(known: Known): Piece[] {
  const found: { first: number; lines: string[] }[] = [];
  for (const [number, line] of [...known].toSorted(([one], [other]) => one - other)) {
    const last = found[found.length - 1];
    if (last && last.first + last.lines.length === number) last.lines.push(line);
    else found.push({ first: number, lines: [line] });
  }
  return found.map(({ first, lines: told }) => ({ first, text: told.join("\n") }));
}

function placesIn(piece: Piece, before: string): number[] {
  const found: number[] = [];
  for (let at = before ? piece.text.indexOf(before) : -1; at >= 0; at = piece.text.indexOf(before, at + before.length)) found.push(at);
  return found;
}

function placesOf(known: Known, before: string): [Piece, number][] {
  return piecesOf(known).flatMap((piece) => placesIn(piece, before).map((at): [Piece, number] => [piece, at]));
}

/** What an edit would change, with a few lines around; null: where it is is not known. */
export function changeOf(known: Known, old: string, young: string, isAll: boolean): Change | null {
  const [before, after] = [plain(old), plain(young)];
  const found = placesOf(known, before);
  if (found.length === 0) return null;
  const grows = after.split("\n").length - before.split("\n").length;
  const shown = found.slice(0, isAll ? MOST_PLACES : 1);
  const places = shown.map(([piece, at], n) => {
    const start = piece.text.slice(0, at).lastIndexOf("\n") + 1;
    const end = (piece.text + "\n").indexOf("\n", at + before.length);
    const first = piece.first + piece.text.slice(0, start).split("\n").length - 1;
    const above = piece.text.slice(0, start).split("\n").slice(-AROUND - 1, -1);
    const below = piece.text.slice(end + 1).split("\n").slice(0, AROUND);
    const around = (told: string) => [...above, told, ...(end < piece.text.length ? below : [])].join("\n");
    const changed = piece.text.slice(start, at) + after + piece.text.slice(at + before.length, end);
    const skipped = first - above.length - 1;
    return lines(around(piece.text.slice(start, end)), around(changed)).map((line) => ({
      ...line,
      before: line.before && line.before + skipped,
      after: line.after && line.after + skipped + n * grows,
    }));
  });
  return { places, others: found.length - shown.length };
}
