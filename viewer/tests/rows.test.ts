import { assert, test } from "vitest";
import { below, childrenOf, isFailing, onlyCall, opensAtFirst, rowsOf, selectedAtFirst, titleOf } from "../src/logic/rows.ts";
import { endingInShort, type Step, Tree } from "../src/logic/tree.ts";
import { recording, Script } from "./events.ts";

function grown(script: Script, ...some: Parameters<typeof recording>): Tree {
  const tree = new Tree(recording(...some));
  tree.add(script.events);
  return tree;
}

function at(tree: Tree, key: string): Step {
  const step = tree.steps.get(key);
  assert(step, `there is no ${key} in ${[...tree.steps.keys()].join(", ")}`);
  return step;
}

const looked = () => new Script().start().add("AttemptStarted").say("", ["c", "look"]).finish("c", "look", "up");

test("only an iteration without words and with one call stands for that call", () => {
  const tree = grown(looked());
  assert.strictEqual(onlyCall(at(tree, "lead/1.1"))?.toolUseId, "c");
  assert.strictEqual(onlyCall(at(tree, "lead/1.1/c")), null);
  assert.strictEqual(onlyCall(at(grown(new Script().start().say("I look.", ["c", "look"])), "lead/1.1")), null);
  assert.strictEqual(onlyCall(at(grown(new Script().start().say("", ["c", "look"], ["d", "look"])), "lead/1.1")), null);
});

test("what is below a step leaves out an only attempt and an only run; a second one of each has its own row", () => {
  const script = looked().add("AttemptCompleted", { succeeded: false });
  assert.deepEqual(below(grown(script).root).map((step) => step.key), ["lead/1.1"]);
  script.attempt = 2;
  assert.deepEqual(below(grown(script.say("Again.")).root).map((step) => step.key), ["lead/1", "lead/2"]);
  const crew = new Script().start(["ann"]).say("One.").succeed().start(["ben"]).say("Two.").succeed();
  assert.deepEqual(below(grown(crew, { kind: "team" }).root).filter((step) => step.kind === "run").map((step) => step.key), ["ann", "ben"]);
});

test("the children of a row that stands for a call are those of the call", () => {
  const script = new Script().start().say("", ["c", "subagent"]).start(["lead", "scout#1"], { tool_use_id: "c" }).say("Mine.");
  assert.deepEqual(childrenOf(at(grown(script), "lead/1.1")).map((step) => step.key), ["lead/scout#1"]);
});

test("what failed and what is live is open at first, a child that is done is not", () => {
  const script = new Script().start().say("I send one.", ["c", "subagent"]).start(["lead", "scout#1"], { tool_use_id: "c" }).say("Mine.", ["d", "look"]);
  assert.isTrue(opensAtFirst(at(grown(script), "lead/scout#1")));
  const done = grown(script.finish("d", "look", "up").succeed());
  assert.deepEqual([opensAtFirst(at(done, "lead/scout#1")), opensAtFirst(at(done, "lead/scout#1/1.1"))], [false, false]);
  assert.deepEqual([opensAtFirst(at(done, "lead/1.1")), opensAtFirst(at(done, "lead/1.1/c"))], [true, true]);
  const failed = new Script().start().say("I send one.", ["c", "subagent"]).start(["lead", "scout#1"], { tool_use_id: "c" }).say("Mine.").fail("API_ERROR");
  assert.isTrue(opensAtFirst(at(grown(failed), "lead/scout#1")));
});

test("with errors only, what failed is found below what did not", () => {
  const tree = grown(new Script().start().say("One.", ["a", "read"], ["b", "grep"]).finish("a", "read", "no", true).finish("b", "grep", "").succeed());
  assert.deepEqual([isFailing(at(tree, "lead/1.1/a")), isFailing(at(tree, "lead/1.1/b"))], [true, false]);
  const { rows, found } = rowsOf(tree, { opened: new Map(), filter: "", errorsOnly: true });
  assert.deepEqual(rows.map((row) => [titleOf(row.step).title, row.isGrey]), [["One.", true], ["read", false]]);
  assert.strictEqual(found, 1);
});

test("while a run is live its newest iteration is selected, and nothing where there is nothing", () => {
  assert.strictEqual(selectedAtFirst(grown(looked().say("And on."), { status: "running", ended: null }))?.kind, "iteration");
  assert.strictEqual(selectedAtFirst(grown(new Script())), null);
});

test("an ending is told by the figures that made it, or else by its code", () => {
  assert.strictEqual(endingInShort({ code: "BUDGET_EXCEEDED", context: { policy: "tokens", used: 36_001, limit: 36_000 } }), "36,001 of 36,000 tokens");
  assert.strictEqual(endingInShort({ code: "OVER", context: { used: 2, limit: 1 } }), "2 of 1");
  assert.strictEqual(endingInShort({ code: "API_ERROR", context: { used: 2 } }), "API_ERROR");
});
