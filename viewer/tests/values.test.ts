import { assert, test } from "vitest";
import { allTokens, blocks, factsOf, firstOf, inOneLine, isCut, isObject, length, list, NOTHING, number, object, sentTokens, sum, text, usage, wordsOf } from "../src/logic/values.ts";
import { Script } from "./events.ts";

test("a text that was cut or not kept is told as what it is", () => {
  assert.strictEqual(text({ cut: "The beginning", characters: 9_000 }), "The beginning");
  assert.strictEqual(text({ characters: 12, digest: "ab" }), "[12 characters, not kept]");
  assert.strictEqual(isCut({ message: { content: [{ text: { cut: "x", characters: 9_000 } }] } }), true);
  assert.strictEqual(isCut({ text: { characters: 12, digest: "ab" } }), false);
});

test("whatever facts hold is read as what it should be, or as nothing", () => {
  const odd = [null, undefined, 3, "x", [1], { a: 1 }];
  assert.deepEqual(odd.map(isObject), [false, false, false, false, false, true]);
  assert.deepEqual(odd.map(object), [{}, {}, {}, {}, {}, { a: 1 }]);
  assert.deepEqual(odd.map(list), [[], [], [], [], [1], []]);
  assert.deepEqual(odd.map(number), [null, null, 3, null, null, null]);
  assert.deepEqual(odd.map(text), ["", "", "3", "x", "[1]", '{"a":1}']);
});

test("what an event says is told without where and when it happened", () => {
  const [event] = new Script().add("ToolFinished", { kind: "tool", is_error: true }, { tool_use_id: "c1", tool_name: "look" }).events;
  assert.deepEqual(event && factsOf(event), { kind: "tool", is_error: true });
});

test("a text is as long as it was, though only its beginning is here", () => {
  assert.deepEqual([length("abc"), length({ cut: "a", characters: 9_000 }), length(undefined)], [3, 9_000, 0]);
});

test("usage adds up, and its cost is not known where one of its costs is not", () => {
  const one = usage({ requests: 1, input_tokens: 10, cache_read_tokens: 20, cache_write_tokens: 5, output_tokens: 7, cost: 0.5 });
  assert.deepEqual([sentTokens(one), allTokens(one)], [35, 42]);
  const two = sum(one, one);
  assert.deepEqual([two.requests, allTokens(two), two.cost], [2, 84, 1]);
  assert.deepEqual(sum(one, NOTHING), one);
  assert.strictEqual(sum(one, usage({ requests: 1, output_tokens: 1 })).cost, null);
  assert.deepEqual(usage(undefined), NOTHING); // who asked nothing has spent nothing
});

test("a message is its blocks, and one of another shape has none", () => {
  const [one, other] = new Script().add("MessageCommitted", { message: { content: [{ type: "text" }, "odd"] } }).add("MessageCommitted").events;
  assert(one && other);
  assert.deepEqual([blocks(one), blocks(other)], [[{ type: "text" }, {}], []]);
});

test("the words of a message are its texts, and nothing else of it", () => {
  const content = [{ type: "thinking", text: "Hm." }, { type: "text", text: "One." }, { type: "tool_use", name: "read" }, { type: "text", text: { cut: "Tw", characters: 9 } }];
  const told = new Script().add("MessageCommitted", { message: { role: "assistant", content } }).events;
  assert.deepEqual(told.flatMap(wordsOf), ["One.", "Tw"]);
});

test("arguments are told in one line, flags by their names", () => {
  assert.strictEqual(inOneLine({ path: "a\n  b.md", limit: 3, deep: true, all: false, nested: { x: 1 } }), "a b.md 3 deep no all");
  assert.deepEqual([inOneLine("plain"), inOneLine(null), inOneLine({ secret: { characters: 3 } })], ["plain", "", "[3 characters, not kept]"]);
  assert.strictEqual(inOneLine({ long: "x".repeat(999), more: "y" }).length, 240);
  assert.strictEqual(firstOf("\nOne.\nTwo."), "One.");
});
