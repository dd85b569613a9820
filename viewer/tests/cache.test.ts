import { assert, test } from "vitest";
import { cacheLine, isMissed, pricesFrom, read, REASONS, SHORTEST, told } from "../src/logic/cache.ts";
import { NOTHING } from "../src/logic/values.ts";
import { pieces, sent } from "./events.ts";

const tools = [{ name: "a" }, { name: "b" }];

const message = (text: string, mark = false) => ({ role: "user", content: [{ type: "text", text, ...(mark ? { cache_control: { type: "ephemeral" } } : {}) }] });

const body = (system: string, ...messages: object[]) => ({ model: "m", tools, system: [{ type: "text", text: system }], messages }) as never;

function lineOf(before: never, now: never, readBefore: number, readNow: number, apart = 1, compacted = false) {
  const one = sent(1, { input_tokens: 10, cache_read_input_tokens: 0, cache_creation_input_tokens: readBefore });
  const other = sent(2, { input_tokens: 10, cache_read_input_tokens: readNow, cache_creation_input_tokens: 4_000 - readNow }, { at: one.at + apart });
  const [first, second] = [read(pieces(before)), read(pieces(now))];
  assert.ok(first && second);
  return cacheLine(first, second, { sent: one, used: null }, { sent: other, used: null }, compacted);
}

test("a cache mark that moved is shown and never blamed", () => {
  const line = lineOf(body("s", message("x", true)), body("s", message("x"), message("y", true)), 3_000, 3_000);
  assert.strictEqual(line.breaks, null);
  assert.strictEqual(line.reason, null);
  assert.deepEqual(line.moved, { from: ["messages[0]"], to: ["messages[1]"] });
  assert.deepEqual(line.blocks.map((block) => block.kind), ["same", "same", "same", "new"]);
});

test("the first part that differs is named with its character, what it likely was, and what is lost", () => {
  const line = lineOf(body("It is 09:41:07.", message("x")), body("It is 09:43:52.", message("x"), message("y")), 3_000, 0);
  assert.deepEqual([line.breaks?.label, line.breaks?.character], ["system[0]", 11]);
  assert.deepEqual([line.breaks?.before, line.breaks?.after], ["09:41:07", "09:43:52"]);
  assert.strictEqual(line.reason, "time");
  assert.strictEqual(line.lost, 3_000);
  assert.deepEqual(line.blocks.map((block) => block.kind), ["same", "lost", "lost", "new"]);
});

test("other reasons are told apart", () => {
  const other = { ...(body("s", message("x")) as object), tools: tools.toReversed() } as never;
  const more = { ...(body("s", message("x")) as object), tools: [...tools, { name: "c" }] } as never;
  const plain = body("s", message("x"));
  assert.strictEqual(lineOf(plain, other, 3_000, 0).reason, "tools order");
  assert.strictEqual(lineOf(plain, more, 3_000, 0).reason, "tools");
  assert.strictEqual(lineOf(plain, body("t", message("x")), 3_000, 0).reason, "system");
  assert.strictEqual(lineOf(plain, body("s", message("z")), 3_000, 0).reason, "earlier message");
  assert.strictEqual(lineOf(plain, body("s", message("z")), 3_000, 0, 1, true).reason, "compaction");
  assert.strictEqual(lineOf(plain, body("s", message("x"), message("y")), 3_000, 0, 400).reason, "expired");
  assert.strictEqual(lineOf(plain, body("s", message("x"), message("y")), 3_000, 0).reason, "unknown");
});

test("a request that is no JSON, or was not kept, is not made up", () => {
  assert.strictEqual(read([{ number: 1, size: 3, body: "{no" }]), null);
  assert.strictEqual(read([{ number: 1, size: 3, body: null }]), null);
});

test("prices follow from what answers cost, or are not known", () => {
  const of = (input: number, cached: number, written: number, output: number) => ({
    ...NOTHING, requests: 1, input_tokens: input, cache_read_tokens: cached, cache_write_tokens: written, output_tokens: output,
    cost: (input * 2 + cached * 0.1 + written * 2.5 + output * 10) / 1e6, saved: (cached * 1.9 - written * 0.5) / 1e6,
  });
  const found = pricesFrom([of(855, 0, 0, 24), of(0, 0, 1_555, 157), of(0, 1_555, 317, 395)]);
  assert.ok(found);
  assert.deepEqual(Object.values(found).map((price) => Math.round(price * 1e8) / 100), [2, 0.1, 2.5, 10]);
  assert.strictEqual(pricesFrom([of(855, 0, 0, 24)].map((each) => ({ ...each, saved: null }))), null);
  assert.strictEqual(pricesFrom([{ ...NOTHING, cost: null, saved: null }]), null);
});

test("a miss is a miss only where there was something to read", () => {
  assert.strictEqual(isMissed(null, NOTHING), false);
  assert.strictEqual(isMissed(NOTHING, NOTHING), false);
  assert.strictEqual(isMissed({ ...NOTHING, cache_write_tokens: 2_000 }, NOTHING), true);
  assert.strictEqual(isMissed({ ...NOTHING, cache_write_tokens: 2_000 }, { ...NOTHING, cache_read_tokens: 1_990 }), false);
});

test("what answers told of their tokens is read in the words of any provider", () => {
  const used = (raw: object) => {
    const found = told(sent(1, raw as never));
    return found && [found.input_tokens, found.cache_read_tokens, found.cache_write_tokens, found.output_tokens];
  };
  assert.deepEqual(used({ input_tokens: 10, cache_read_input_tokens: 90, cache_creation_input_tokens: 5, output_tokens: 7 }), [10, 90, 5, 7]);
  assert.deepEqual(used({ prompt_tokens: 100, prompt_tokens_details: { cached_tokens: 90 }, completion_tokens: 7 }), [10, 90, 0, 7]);
  assert.deepEqual(used({ input_tokens: 100, input_tokens_details: { cached_tokens: 90 }, output_tokens: 7 }), [10, 90, 0, 7]);
  assert.deepEqual(used({ promptTokenCount: 100, cachedContentTokenCount: 90, candidatesTokenCount: 7 }), [10, 90, 0, 7]);
  assert.strictEqual(used({}), null);
});

test("a prompt that is shorter than what providers keep is not said to have missed", () => {
  const plain = body("s", message("x"));
  const one = sent(1, { input_tokens: 10, cache_read_input_tokens: 0, cache_creation_input_tokens: 200 });
  const other = sent(2, { input_tokens: SHORTEST - 10, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 });
  const [first, second] = [read(pieces(plain)), read(pieces(body("s", message("x"), message("y"))))];
  assert(first && second);
  const line = cacheLine(first, second, { sent: one, used: null }, { sent: other, used: null }, false);
  assert.strictEqual(line.reason, "too short");
  assert.strictEqual(line.predicted, 0);
  assert.include(REASONS["too short"].advice, SHORTEST.toLocaleString("en-US"));
});
