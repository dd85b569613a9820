import { assert, test } from "vitest";
import { choose } from "../src/logic/selection.ts";

const ROWS = ["a", "b", "c", "d", "e"];
const chosen = (...ids: string[]) => new Set(ids);

test("a click chooses a row, and another one leaves it out again", () => {
  assert.deepEqual(choose(chosen(), ROWS, "b"), chosen("b"));
  assert.deepEqual(choose(chosen("b", "c"), ROWS, "b"), chosen("c"));
});

test("with Shift, all between two clicks get the state of the second, in either direction", () => {
  assert.deepEqual(choose(chosen("b"), ROWS, "d", "b"), chosen("b", "c", "d"));
  assert.deepEqual(choose(chosen("d"), ROWS, "b", "d"), chosen("b", "c", "d"));
  assert.deepEqual(choose(chosen("a", "b", "c", "d"), ROWS, "b", "d"), chosen("a"));
});

test("what was clicked before and is not in the list any more begins no range", () => {
  assert.deepEqual(choose(chosen("b"), ROWS, "d", "gone"), chosen("b", "d"));
});

test("what was chosen before stays as it is", () => {
  const before = chosen("e");
  choose(before, ROWS, "a", "c");
  assert.deepEqual(before, chosen("e"));
});
