import { assert, test } from "vitest";
import { childrenOf, reveal, rowsOf, selectedAtFirst, titleOf } from "../src/logic/rows.ts";
import { Tree } from "../src/logic/tree.ts";
import { allTokens } from "../src/logic/values.ts";
import { recording, Script } from "./events.ts";

const shown = { opened: new Map<string, boolean>(), filter: "", errorsOnly: false };

function told(tree: Tree, some: Partial<typeof shown> = {}): string[] {
  return rowsOf(tree, { ...shown, ...some }).rows.map((row) => (row.hidden ? `${row.hidden} more` : `${"  ".repeat(row.level)}${titleOf(row.step).title}${row.step.chip ? ` [${row.step.chip.text}]` : ""}`));
}

test("an only attempt, and the run itself, have no row of their own", () => {
  const tree = new Tree(recording());
  tree.add(new Script().start().add("AttemptStarted").say("Hello.").succeed().events);
  assert.deepEqual(told(tree), ["Hello.", "Ending"]);
});

test("an iteration without words and with one call is one row", () => {
  const tree = new Tree(recording());
  tree.add(new Script().start().say("", ["c", "look", { topic: "tides" }]).finish("c", "look", "up").succeed().events);
  assert.deepEqual(told(tree), ["look", "Ending"]);
  assert.strictEqual(rowsOf(tree, shown).rows[0]?.only?.toolUseId, "c");
});

test("a call to which the sandbox refused something says so", () => {
  const tree = new Tree(recording());
  const script = new Script().start().say("", ["c", "bash", { command: "touch /x" }]);
  script.add("SandboxRefused", { tool_use_id: "c", tool_name: "bash", sandbox: "bubblewrap", cause: "write", what: "/x", need: "write:/x" });
  tree.add(script.finish("c", "bash", "[exit code 1]").succeed().events);
  assert.deepEqual(rowsOf(tree, shown).rows[0]?.only?.chip, { text: "refused", look: "bad" });
  assert.strictEqual(tree.steps.get("lead/1.1/c")?.events.filter((event) => event.type === "SandboxRefused").length, 1);
});

test("several calls without words are counted and named", () => {
  const tree = new Tree(recording());
  const script = new Script().start().say("", ["a", "read"], ["b", "read"], ["c", "grep"]);
  tree.add(script.finish("a", "read", "").finish("b", "read", "").finish("c", "grep", "").events);
  const row = rowsOf(tree, shown).rows[0];
  assert.deepEqual(row && titleOf(row.step), { title: "3 calls", isMono: false, detail: "read, grep", isData: true });
});

test("a run hangs under the call that began it, and calls of one id in two runs are told apart", () => {
  const script = new Script().start().say("I send one.", ["c", "subagent", { agent: "scout", task: "Go." }]);
  script.start(["lead", "scout#1"], { tool_use_id: "c" }).say("Mine.", ["c", "look"]).finish("c", "look", "seen").succeed();
  script.path = ["lead"];
  script.finish("c", "subagent", "{}").succeed();
  const tree = new Tree(recording({ children: 1 }));
  tree.add(script.events);
  const all = new Map([...tree.steps.values()].flatMap((step) => [[step.key, false]] as [string, boolean][]));
  for (const key of all.keys()) all.set(key, true);
  assert.deepEqual(told(tree, { opened: all }), ["I send one.", "  subagent", "    scout#1", "      Mine.", "        look", "Ending"]);
  assert.strictEqual(tree.steps.get("lead/1.1/c")?.title, "subagent");
  assert.strictEqual(tree.steps.get("lead/scout#1/1.1/c")?.title, "look");
});

test("a rejected attempt says so, and what rejected it belongs to the draft that was handed in", () => {
  const script = new Script().start().say("A draft.", ["d", "report", { value: 46 }, "output"]).finish("d", "report", "46 %", false, "output");
  script.iteration = 2;
  script.say("It is good.", ["s", "submit", {}, "submit"]).layer("schema", true).layer("right", false, "value: no").add("ValidationFailed", { feedback: "value: no" });
  script.finish("s", "submit", "Validation failed", true, "submit").add("AttemptCompleted", { succeeded: false });
  script.attempt = 2;
  script.iteration = 1;
  script.say("Again.").succeed();
  const tree = new Tree(recording({ attempts: 2 }));
  tree.add(script.events);
  assert.deepEqual(told(tree), ["Attempt 1 [rejected]", "  A draft.", "    report [draft 1]", "  It is good.", "    submit [rejected]", "Attempt 2", "  Again.", "Ending"]);
  const draft = tree.runs[0]?.drafts[0];
  assert.deepEqual(draft?.verdict?.layers.map((layer) => [layer.name, layer.passed]), [["schema", true], ["right", false]]);
  assert.strictEqual(draft?.verdict?.call?.toolUseId, "s");
});

test("a request that was never sent is told as that, with its reason, and the ending by its figures", () => {
  const tree = new Tree(recording({ status: "failed", code: "BUDGET_EXCEEDED" }));
  tree.add(new Script().start().add("IterationStarted").fail("BUDGET_EXCEEDED", { policy: "tokens", limit: 60, used: 50 }).events);
  assert.deepEqual(told(tree), ["Not sent", "Ending"]);
  assert.strictEqual(tree.steps.get("lead/ending")?.detail, "50 of 60 tokens");
  assert.strictEqual(selectedAtFirst(tree)?.key, "lead/ending");
});

test("what waits for a person is selected at first, and no more when it was answered", () => {
  const script = new Script().start().say("May I?", ["c", "edit", { path: "a" }]);
  script.add("ApprovalRequested", { id: "q", question: "?", arguments: {}, question_id: "d", offers: ["once"] }, { tool_use_id: "c", tool_name: "edit" });
  const tree = new Tree(recording({ status: "running", ended: null }));
  tree.add(script.events);
  assert.strictEqual(selectedAtFirst(tree)?.toolUseId, "c");
  assert.strictEqual(tree.steps.get("lead/1.1")?.state, "waits");
  tree.add([...script.add("ApprovalAnswered", { id: "q", decision: "allow" }).events]);
  assert.strictEqual(tree.waits, null);
  assert.strictEqual(tree.steps.get("lead/1.1")?.state, "live");
});

test("the turns of a chat stand above, and their usage adds up", () => {
  const script = new Script().start().add("Input", { input: "First." }).say("One.").succeed().add("TurnEnded", { code: "SUCCESS" });
  script.start(["lead"]).add("Input", { input: "Second." }).say("Two.").succeed().add("TurnEnded", { result: {} }); // as older recordings have it
  const tree = new Tree(recording({ kind: "chat", status: "left" }));
  tree.add(script.events);
  assert.deepEqual(told(tree), ["Turn 1", "  One.", "Turn 2", "  Two."]);
  assert.deepEqual(tree.root.children.map((turn) => [turn.detail, allTokens(turn.used)]), [["First.", 110], ["Second.", 110]]);
  assert.ok(tree.steps.has("lead:2/1.1"));
});

test("of many siblings the first and the last are shown, and those that failed", () => {
  const script = new Script().start();
  for (let n = 1; n <= 40; n += 1) {
    script.iteration = n;
    script.say(`Step ${n}.`, [`c${n}`, "look"]).finish(`c${n}`, "look", "", n === 20);
  }
  const tree = new Tree(recording());
  tree.add(script.events);
  const opened = new Map([...tree.steps.keys()].map((key) => [key, false]));
  const rows = told(tree, { opened });
  assert.deepEqual(rows.slice(9, 14), ["Step 10.", "9 more", "Step 20.", "15 more", "Step 36."]);
  assert.strictEqual(rows.length, 18);
  const hidden = tree.steps.get("lead/1.30");
  assert.ok(hidden);
  reveal(hidden, opened);
  assert.ok(told(tree, { opened }).includes("Step 30."));
});

test("a filter keeps what is above of what it finds, and counts both", () => {
  const tree = new Tree(recording());
  tree.add(new Script().start().say("One.", ["a", "read"]).finish("a", "read", "").say("Two.").succeed().events);
  const found = rowsOf(tree, { ...shown, filter: "read" });
  assert.deepEqual(found.rows.map((row) => [titleOf(row.step).title, row.isGrey]), [["One.", true], ["read", false]]);
  assert.strictEqual(found.found, 1);
});

test("it does not matter in which pages events come, or whether some come twice", () => {
  const script = new Script().start().say("One.", ["a", "read"]).finish("a", "read", "x");
  script.iteration = 2;
  const events = script.say("Two.").succeed().events;
  const whole = new Tree(recording());
  whole.add(events);
  for (let at = 0; at <= events.length; at += 1) {
    const other = new Tree(recording());
    other.add(events.slice(0, at));
    other.add(events.slice(Math.max(0, at - 3)));
    assert.deepEqual(told(other), told(whole));
    assert.strictEqual(other.events, events.length);
  }
});

test("an event of a kind that is not known is kept, and harms nothing", () => {
  const tree = new Tree(recording());
  tree.add(new Script().start().add("SomethingNew", { what: 1 }).add("constructor").add("__proto__").add("MessageCommitted", {}).add("ToolFinished", {}, { tool_use_id: "nobody" }).say("One.").succeed().events);
  assert.deepEqual(told(tree), ["One.", "Ending"]);
  assert.ok(childrenOf(tree.root).length > 0);
});
