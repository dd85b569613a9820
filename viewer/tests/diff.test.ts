import { assert, test } from "vitest";
import { around, beside, common, lines, words } from "../src/logic/diff.ts";

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

test("of any two texts, the lines give both sides back, and so do the words", () => {
  const next = random(7);
  const some = () => Array.from({ length: Math.floor(next() * 9) }, () => ["a", "b b", "c 1", "", "d"][Math.floor(next() * 5)] ?? "").join("\n");
  for (let n = 0; n < 500; n += 1) {
    const [before, after] = [some(), some()];
    const found = lines(before, after);
    assert.strictEqual(found.filter((line) => line.sign !== "+").map((line) => line.text).join("\n"), before);
    assert.strictEqual(found.filter((line) => line.sign !== "-").map((line) => line.text).join("\n"), after);
    for (const line of found) if (line.words) assert.strictEqual(line.words.map((word) => word.text).join(""), line.text);
    assert.strictEqual(beside(found).filter((row) => row.after).length, found.filter((line) => line.sign !== "-").length);
  }
});

test("words that changed are marked, blanks are not", () => {
  const [before, after] = words("  (other)   0   0.0%", "  (other)  29   0.3%");
  assert.deepEqual(before.filter((word) => word.isMarked).map((word) => word.text), ["0", "0.0"]);
  assert.deepEqual(after.filter((word) => word.isMarked).map((word) => word.text), ["29", "0.3"]);
});

test("far from a change, lines are left out once", () => {
  const text = Array.from({ length: 30 }, (_, n) => `line ${n}`);
  const told = around(lines(text.join("\n"), text.with(15, "changed").join("\n")), 2);
  assert.deepEqual(told.map((line) => (line === null ? "…" : line.sign)), ["…", " ", " ", "-", "+", " ", " ", "…"]);
});

test("of two sequences, as many places as there can be are the same, in the order of both", () => {
  assert.deepEqual(common(["a", "b", "c", "d"], ["b", "x", "c", "a", "d"]), [[1, 0], [2, 2], [3, 4]]);
  assert.deepEqual(common(["a"], ["b"]), []);
  assert.deepEqual(common(["a", "b"], ["b", "b"], false), [[1, 0]]); // the first that fits, not the last
});

test("lines that changed stand beside each other, and one that is only on one side stands alone", () => {
  const rows = beside(lines("same\none\ntwo", "same\nonly"));
  assert.deepEqual(rows.map((row) => [row.before?.text ?? null, row.after?.text ?? null]), [["same", "same"], ["one", "only"], ["two", null]]);
  assert.deepEqual(rows.map((row) => [row.before?.before ?? null, row.after?.after ?? null]), [[1, 1], [2, 2], [3, null]]);
});
