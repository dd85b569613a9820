import { assert, test } from "vitest";
import { curl, requestsByStep, stepKey } from "../src/logic/requests.ts";
import { goesOn, stateOf, Tree } from "../src/logic/tree.ts";
import { recording, Script, sent } from "./events.ts";

test("of several requests of an iteration the last is shown, and one of no run that is known is left out", () => {
  const tree = new Tree(recording());
  tree.add(new Script().start().say("Hello.").succeed().events);
  const [run] = tree.runs;
  assert(run);
  const of = (n: number, more = {}) => sent(n, {}, { path: run.path, attempt: 1, iteration: 1, at: run.start + n, ...more });
  const found = requestsByStep(tree, [of(1), of(2), of(3, { path: ["a stranger"] }), of(4, { iteration: 2 })]);
  assert.deepEqual([...found].map(([key, each]) => [key, each.n]), [[stepKey(run, 1, 1), 2], [stepKey(run, 1, 2), 4]]);
});

test("a request is written for a shell that takes nothing of it for its own, and without the key", () => {
  const around = { url: "https://api.test/v1", headers: { "x-a": "it's" } };
  const told = (model: string) => curl(sent(1, {}, { around, model }), `{"a": "it's $HOME"}`);
  assert.strictEqual(told("anthropic:m"), `curl 'https://api.test/v1' \\\n  -H "x-api-key: $ANTHROPIC_API_KEY" \\\n  -H 'x-a: it'\\''s' \\\n  --data-binary '{"a": "it'\\''s $HOME"}'`);
  assert.include(told("google:m"), "x-goog-api-key: $GEMINI_API_KEY");
  assert.include(told("openai:m"), "authorization: Bearer $OPENAI_API_KEY");
});

test("each status of a run has its state, and one that waits for somebody waits", () => {
  assert.deepEqual(["running", "held", "failed", "died", "blocked", "cancelled", "done"].map((status) => stateOf(status)), ["live", "live", "failed", "failed", "failed", "cancelled", "done"]);
  assert.strictEqual(stateOf("running", true), "waits");
  assert.deepEqual(["ready", "blocked", "done", "left", "died"].map((status) => goesOn({ status })), [true, true, false, false, false]);
});
