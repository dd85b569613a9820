import { assert, test } from "vitest";
import { age, allowedMoney, clock, count, DASH, duration, exact, firstLine, money, percent, plural, shortId, size, utc } from "../src/logic/format.ts";

test("figures are written whole to 9,999, and what is not known is a dash", () => {
  assert.deepEqual([0, 9_999, 10_000, 999_949, 999_950, 1_200_000].map(count), ["0", "9,999", "10.0k", "999.9k", "1.00M", "1.20M"]);
  assert.deepEqual([null, undefined, Number.NaN].map(count), ["–", "–", "–"]);
  assert.deepEqual([0, 0.0384, 1, 1234.5, null].map(money), ["$0.0000", "$0.0384", "$1.00", "$1,234.50", "–"]);
  assert.deepEqual([0, 0.0004, 0.725, 5.31, 124, 7_300, null].map(duration), ["<1 ms", "<1 ms", "725 ms", "5.3 s", "2m 04s", "2h 01m", "–"]);
  assert.deepEqual([12, 13_300, 127_000_000].map(size), ["12 bytes", "13.3 kB", "127.0 MB"]);
  assert.deepEqual([percent(54, 100), percent(0, 0)], ["54 %", "–"]);
  assert.deepEqual([age(100, 109), age(0, 180), age(0, 7_300), age(0, 200_000)], ["9 s ago", "3 min ago", "2 h ago", "2 d ago"]);
});

test("where somebody points, every digit is told, and what is not known is said so", () => {
  assert.deepEqual([1_234_567, 0, null, undefined].map(exact), ["1,234,567", "0", "not known", "not known"]);
  assert.deepEqual([count(1.4e9), count(Number.POSITIVE_INFINITY), duration(Number.NaN)], ["1.40G", DASH, DASH]);
});

test("a limit in dollars has no more digits than it needs, and two at least", () => {
  assert.deepEqual([0.5, 0.025, 0.1234, 0, 12, 1_234.5, null].map(allowedMoney), ["$0.50", "$0.025", "$0.1234", "$0.00", "$12.00", "$1,234.50", "–"]);
});

test("one is one, and any other number are many", () => {
  assert.deepEqual([0, 1, 2, 1_200].map((n) => plural(n, "run")), ["0 runs", "1 run", "2 runs", "1,200 runs"]);
  assert.strictEqual(plural(2, "child", "children"), "2 children");
});

test("a moment is told in the time of this place, and in UTC", () => {
  assert.strictEqual(utc(1_795_461_332.5), "2026-11-23 19:15:32.500 UTC");
  assert.strictEqual(clock(1_795_461_332.5), new Date(1_795_461_332_500).toLocaleTimeString("en-GB"));
});

test("an id is known by its beginning and its end", () => {
  assert.deepEqual(["01a209d5-bd9c-78fc", "chat/anna"].map(shortId), ["01a2…c-78fc", "chat/anna"]);
});

test("of a text the first line that says something is told, and no more of it than there is room for", () => {
  assert.deepEqual([firstLine("\n  \n  One. \nTwo."), firstLine("abcdef", 3), firstLine(" \n")], ["One.", "abc…", ""]);
});
