import assert from "node:assert/strict";
import { test } from "node:test";
import { cacheLine, isMissed, pricesFrom, read } from "../src/logic/cache.ts";
import { align } from "../src/logic/compare.ts";
import { around, beside, lines, words } from "../src/logic/diff.ts";
import { age, count, duration, money, percent, size } from "../src/logic/format.ts";
import { split, underlined, valueAt } from "../src/logic/paths.ts";
import { markdown, python } from "../src/logic/transcript.ts";
import { Tree } from "../src/logic/tree.ts";
import { isCut, NOTHING, text } from "../src/logic/values.ts";
import { pieces, recording, Script, sent } from "./events.ts";

test("figures are written whole to 9,999, and what is not known is a dash", () => {
  assert.deepEqual([0, 9_999, 10_000, 999_949, 999_950, 1_200_000].map(count), ["0", "9,999", "10.0k", "999.9k", "1.00M", "1.20M"]);
  assert.deepEqual([null, undefined, Number.NaN].map(count), ["–", "–", "–"]);
  assert.deepEqual([0, 0.0384, 1, 1234.5, null].map(money), ["$0.0000", "$0.0384", "$1.00", "$1,234.50", "–"]);
  assert.deepEqual([0, 0.0004, 0.725, 5.31, 124, 7_300, null].map(duration), ["<1 ms", "<1 ms", "725 ms", "5.3 s", "2m 04s", "2h 01m", "–"]);
  assert.deepEqual([12, 13_300, 127_000_000].map(size), ["12 bytes", "13.3 kB", "127.0 MB"]);
  assert.deepEqual([percent(54, 100), percent(0, 0)], ["54 %", "–"]);
  assert.deepEqual([age(100, 109), age(0, 180), age(0, 7_300), age(0, 200_000)], ["9 s ago", "3 min ago", "2 h ago", "2 d ago"]);
});

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
    assert.equal(found.filter((line) => line.sign !== "+").map((line) => line.text).join("\n"), before);
    assert.equal(found.filter((line) => line.sign !== "-").map((line) => line.text).join("\n"), after);
    for (const line of found) if (line.words) assert.equal(line.words.map((word) => word.text).join(""), line.text);
    assert.equal(beside(found).filter((row) => row.after).length, found.filter((line) => line.sign !== "-").length);
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

test("paths in the words of a validator lead to values, and these are found in the preview", () => {
  const draft = { findings: [{ value: 46 }, { value: 4054.53 }] };
  assert.equal(valueAt(draft, "findings[1].value"), 4054.53);
  assert.deepEqual(split("findings[0].value: it says 46. See nothing[3].else.", draft).filter((part) => part.path).map((part) => part.path), ["findings[0].value"]);
  assert.deepEqual(underlined("leads with 46 % of 10,046 and 46.2", draft, ["findings[0].value"]).filter((part) => part.path).map((part) => part.text), ["46"]);
  assert.deepEqual(underlined("about 4,054.53 $", draft, ["findings[1].value"]).filter((part) => part.path).map((part) => part.text), ["4,054.53"]);
});

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
  assert.equal(line.breaks, null);
  assert.equal(line.reason, null);
  assert.deepEqual(line.moved, { from: ["messages[0]"], to: ["messages[1]"] });
  assert.deepEqual(line.blocks.map((block) => block.kind), ["same", "same", "same", "new"]);
});

test("the first part that differs is named with its character, what it likely was, and what is lost", () => {
  const line = lineOf(body("It is 09:41:07.", message("x")), body("It is 09:43:52.", message("x"), message("y")), 3_000, 0);
  assert.deepEqual([line.breaks?.label, line.breaks?.character], ["system[0]", 11]);
  assert.deepEqual([line.breaks?.before, line.breaks?.after], ["09:41:07", "09:43:52"]);
  assert.equal(line.reason, "time");
  assert.equal(line.lost, 3_000);
  assert.deepEqual(line.blocks.map((block) => block.kind), ["same", "lost", "lost", "new"]);
});

test("other reasons are told apart", () => {
  const other = { ...(body("s", message("x")) as object), tools: tools.toReversed() } as never;
  const more = { ...(body("s", message("x")) as object), tools: [...tools, { name: "c" }] } as never;
  const plain = body("s", message("x"));
  assert.equal(lineOf(plain, other, 3_000, 0).reason, "tools order");
  assert.equal(lineOf(plain, more, 3_000, 0).reason, "tools");
  assert.equal(lineOf(plain, body("t", message("x")), 3_000, 0).reason, "system");
  assert.equal(lineOf(plain, body("s", message("z")), 3_000, 0).reason, "earlier message");
  assert.equal(lineOf(plain, body("s", message("z")), 3_000, 0, 1, true).reason, "compaction");
  assert.equal(lineOf(plain, body("s", message("x"), message("y")), 3_000, 0, 400).reason, "expired");
  assert.equal(lineOf(plain, body("s", message("x"), message("y")), 3_000, 0).reason, "unknown");
});

test("a request that is no JSON, or was not kept, is not made up", () => {
  assert.equal(read([{ number: 1, size: 3, body: "{no" }]), null);
  assert.equal(read([{ number: 1, size: 3, body: null }]), null);
});

test("prices follow from what answers cost, or are not known", () => {
  const of = (input: number, cached: number, written: number, output: number) => ({
    ...NOTHING, requests: 1, input_tokens: input, cache_read_tokens: cached, cache_write_tokens: written, output_tokens: output,
    cost: (input * 2 + cached * 0.1 + written * 2.5 + output * 10) / 1e6, saved: (cached * 1.9 - written * 0.5) / 1e6,
  });
  const found = pricesFrom([of(855, 0, 0, 24), of(0, 0, 1_555, 157), of(0, 1_555, 317, 395)]);
  assert.ok(found);
  assert.deepEqual(Object.values(found).map((price) => Math.round(price * 1e8) / 100), [2, 0.1, 2.5, 10]);
  assert.equal(pricesFrom([of(855, 0, 0, 24)].map((each) => ({ ...each, saved: null }))), null);
  assert.equal(pricesFrom([{ ...NOTHING, cost: null, saved: null }]), null);
});

test("a miss is a miss only where there was something to read", () => {
  assert.equal(isMissed(null, NOTHING), false);
  assert.equal(isMissed(NOTHING, NOTHING), false);
  assert.equal(isMissed({ ...NOTHING, cache_write_tokens: 2_000 }, NOTHING), true);
  assert.equal(isMissed({ ...NOTHING, cache_write_tokens: 2_000 }, { ...NOTHING, cache_read_tokens: 1_990 }), false);
});

test("two runs are aligned by what was done", () => {
  const made = (...said: [string, string?][]) => {
    const script = new Script().start();
    said.forEach(([words, tool], n) => {
      script.iteration = n + 1;
      if (tool) script.say(words, [`c${n}`, tool]).finish(`c${n}`, tool, words);
      else script.say(words);
    });
    const tree = new Tree(recording());
    tree.add(script.succeed().events);
    return tree;
  };
  const a = made(["One.", "read"], ["Two.", "query"], ["Three.", "report"], ["End."]);
  const b = made(["One.", "read"], ["Other.", "report"], ["End."]);
  const { prefix, rest } = align(a, b);
  assert.equal(prefix.length, 1);
  assert.deepEqual(rest.map((pair) => [pair.a?.title ?? null, pair.b?.title ?? null, pair.isSame]), [["Two.", null, false], ["Three.", "Other.", false], ["End.", "End.", true]]);
});

test("a conversation is copied as Markdown that nothing breaks out of, and as Python", () => {
  const script = new Script().add("MessageCommitted", { message: { role: "user", content: [{ type: "text", text: "Go." }] } });
  script.add("MessageCommitted", { message: { role: "user", content: [{ type: "tool_result", content: "a ```` b", is_error: true }] } });
  assert.equal(markdown(script.events), "## User\n\nGo.\n\n## User\n\nResult (an error):\n\n`````\na ```` b\n`````\n");
  assert.match(python(script.events), /^from journeyman import load_messages\n\nmessages = load_messages\("\[\{\\"role\\":\\"user\\"/);
});

test("a text that was cut or not kept is told as what it is", () => {
  assert.equal(text({ cut: "The beginning", characters: 9_000 }), "The beginning");
  assert.equal(text({ characters: 12, digest: "ab" }), "[12 characters, not kept]");
  assert.equal(isCut({ message: { content: [{ text: { cut: "x", characters: 9_000 } }] } }), true);
  assert.equal(isCut({ text: { characters: 12, digest: "ab" } }), false);
});
