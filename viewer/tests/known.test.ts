import { assert, test } from "vitest";
import type { Facts } from "../src/api.ts";
import { type Change, changeOf, type Deed, isEvery, isSamePath, knownAfter } from "../src/logic/known.ts";

function read(...from: [number, string][]): Deed {
  return { tool: "read", args: {}, result: [...from.map(([number, line]) => `${number}\t${line}`), "[Lines 1 to 3 of 9. Go on with offset=4.]"].join("\n") };
}

function edit(old_text: string, new_text: string, more: Facts = {}, result = "Edited a.md: 1 place, at line 1."): Deed {
  return { tool: "edit", args: { old_text, new_text, ...more }, result };
}

const lines = (...texts: string[]): [number, string][] => texts.map((line, at) => [at + 1, line]);
const five = read(...lines("one", "two", "three", "four", "five"));

function told(change: Change | null): string[][] | null {
  return change && change.places.map((place) => place.map((line) => `${line.before ?? ""}${line.sign}${line.after ?? ""} ${line.text}`));
}

test("a file is the same however its path is written", () => {
  assert.deepEqual([isSamePath("a/b.md", "./a//b.md"), isSamePath("/a/b.md", "a/b.md"), isSamePath("a.md", "b.md")], [true, false, false]);
});

test("an edit is of every place only if it says so", () => {
  assert.deepEqual([{ replace_all: true }, { replace_all: "yes" }, {}].map((args) => isEvery(args as Facts)), [true, false, false]);
});

test("lines that were read in parts are known together, and notes are no lines", () => {
  assert.deepEqual([...knownAfter([read([1, "one"], [2, "a\tb"]), read([3, ""])])], [[1, "one"], [2, "a\tb"], [3, ""]]);
  assert.deepEqual([...knownAfter([{ tool: "read", args: {}, result: "[12 characters, not kept]" }])], []);
});

test("where a file was read differently, what was known before is not believed any more", () => {
  assert.deepEqual([...knownAfter([five, read([2, "two"], [3, "other"])])], [[2, "two"], [3, "other"]]);
});

test("what was written is known, and so is what edits made of it", () => {
  const write: Deed = { tool: "write", args: { content: "one\r\ntwo\nthree\n" }, result: "Created." };
  assert.deepEqual([...knownAfter([five, write]).values()], ["one", "two", "three"]);
  assert.deepEqual([...knownAfter([write, edit("two", "2\n2½"), edit("e", "E", { replace_all: true })])], lines("onE", "2", "2½", "thrEE"));
});

test("lines behind an edit move with it, also those that were read apart", () => {
  const known = knownAfter([read([1, "one"], [2, "two"]), read([8, "eight"]), edit("one\n", "")]);
  assert.deepEqual([...known], [[1, "two"], [7, "eight"]]);
});

test("after an edit that was found in another way, only what it told is known", () => {
  const known = knownAfter([five, edit("  two", "2", {}, "Edited a.md: 1 place. It now reads:\n2\t2")]);
  assert.deepEqual([...known], [[2, "2"]]);
  assert.deepEqual([...knownAfter([five, edit("o", "0")])], []); // it was in two places, and this cannot have been made
});

test("a change stands between three lines before and after it, with their numbers", () => {
  const known = knownAfter([read(...lines("a", "b", "c", "d", "e", "f", "g", "h", "i", "j"))]);
  assert.deepEqual(told(changeOf(known, "e", "E1\nE2", false)), [["2 2 b", "3 3 c", "4 4 d", "5- e", "+5 E1", "+6 E2", "6 7 f", "7 8 g", "8 9 h"]]);
});

test("at the beginning and at the end of what is known there is nothing more to show", () => {
  const known = knownAfter([five]);
  assert.deepEqual(told(changeOf(known, "one", "1", false)), [["1- one", "+1 1", "2 2 two", "3 3 three", "4 4 four"]]);
  assert.deepEqual(told(changeOf(known, "five", "", false)), [["2 2 two", "3 3 three", "4 4 four", "5- five", "+5 "]]);
  assert.deepEqual(told(changeOf(knownAfter([read([1, ""], [2, "x"])]), "\nx", "\ny", false)), [["1 1 ", "2- x", "+2 y"]]);
});

test("of many places a few are shown, and the others counted", () => {
  const known = knownAfter([read(...lines("x", "", "", "", "", "x", "", "", "", "", "x", "x"))]);
  const all = changeOf(known, "x", "x\ny", true);
  assert.deepEqual(all?.places.map((place) => place.filter((line) => line.sign === "+").map((line) => line.after)), [[2], [8], [14]]);
  assert.strictEqual(all?.others, 1);
  assert.deepEqual([changeOf(known, "x", "y", false)?.places.length, changeOf(known, "x", "y", false)?.others], [1, 3]);
});

test("where a text is that was not read cannot be told", () => {
  assert.strictEqual(changeOf(knownAfter([five]), "two\nfour", "", false), null);
  assert.strictEqual(changeOf(knownAfter([read([1, "one"], [3, "three"])]), "one\nthree", "", false), null);
  assert.strictEqual(changeOf(new Map(), "", "new", false), null);
});
