import { assert, test } from "vitest";
import type { Facts } from "../src/api.ts";
import { type Budget, gaugesOf, partiesOf } from "../src/logic/gauges.ts";
import { isCounted, type RunStep, Tree } from "../src/logic/tree.ts";
import { recording, Script } from "./events.ts";

/** A lead of one answer, with a scout and a checker in the background, of one answer each: 110 tokens and $0.01. */
function crew(limits: Facts, end: (script: Script) => Script): { tree: Tree; lead: RunStep } {
  const script = new Script().start().add("Input", { input: "Go.", limits }).say("I send two.", ["a", "subagent"], ["b", "subagent"]);
  script.start(["lead", "scout#1"], { tool_use_id: "a" }).say("Mine.", ["c", "look"]).finish("c", "look", "seen").succeed();
  const checker = script.start(["lead", "checker#2"], { tool_use_id: "b" });
  Object.assign(checker.events[checker.events.length - 1] ?? {}, { mode: "background" });
  script.say("Checked.").succeed();
  script.path = ["lead"];
  const tree = new Tree(recording({ children: 2 }));
  tree.add(end(script.finish("a", "subagent", "{}").finish("b", "subagent", "{}")).events);
  return { tree, lead: tree.runs[0] as RunStep };
}

function shown(limits: Facts, end: (script: Script) => Script = (script) => script.succeed(), error: Facts | null = null) {
  const { tree, lead } = crew(limits, end);
  const all = gaugesOf(lead, partiesOf(tree, tree.root), error, 12.5, true);
  return (name: Budget) => all.find((each) => each.name === name);
}

test("neither output nor submit is counted as a call of a tool", () => {
  const tree = new Tree(recording());
  tree.add(new Script().start().say("", ["a", "look"], ["d", "report", {}, "output"], ["s", "submit", {}, "submit"], ["u", "what", {}, "unknown"]).events);
  assert.deepEqual([tree.runs[0]?.counted, [...tree.steps.values()].filter((step) => isCounted(step)).map((step) => step.title)], [2, ["look", "what"]]);
});

test("who used what is told by path, with what was background", () => {
  const { tree } = crew({}, (script) => script.succeed());
  const told = partiesOf(tree, tree.root).map(({ run, mode, calls, used, times }) => [run.path.join("/"), mode, calls, used.requests, times]);
  assert.deepEqual(told, [["lead", "itself", 2, 1, 1], ["lead/scout#1", "", 1, 1, 1], ["lead/checker#2", "background", 0, 1, 1]]);
  const scout = tree.runs[1] as RunStep;
  assert.deepEqual(partiesOf(tree, scout).map(({ run, mode }) => [run.title, mode]), [["scout#1", "itself"]]);
});

test("cost, time, tokens and calls have the limits of the run, and parts that add up", () => {
  const gauge = shown({ cost: 0.5, seconds: 600, tokens: 1_000, calls: 8 });
  assert.deepEqual((["cost", "seconds", "tokens", "calls"] as const).map((name) => gauge(name)?.limit), [0.5, 600, 1_000, 8]);
  assert.deepEqual(gauge("tokens")?.parts.map((part) => [part.look, part.amount]), [["own", 110], ["children", 110], ["background", 110], ["reserved", 0]]);
  assert.deepEqual([gauge("tokens")?.used, gauge("calls")?.used, gauge("seconds")?.used], [330, 3, 12.5]);
  assert.closeTo(gauge("cost")?.used ?? 0, 0.03, 1e-9);
  assert.isFalse((["cost", "seconds", "tokens", "calls"] as const).some((name) => gauge(name)?.ended));
});

test("what is not limited has no limit, and calls are left out then", () => {
  const gauge = shown({});
  assert.deepEqual([gauge("cost")?.limit, gauge("seconds")?.limit, gauge("calls")], [null, null, undefined]);
  assert.deepEqual([gauge("attempts")?.limit, gauge("iterations")?.limit, gauge("iterations")?.used], [3, 9, 1]);
});

test("what ended a run is marked, with what the next call would have needed", () => {
  const context = { policy: "tokens", limit: 400, used: 330, needed: 200 };
  const gauge = shown({ tokens: 1_000, cost: 0.5 }, (script) => script.fail("BUDGET_EXCEEDED", context), { code: "BUDGET_EXCEEDED", context });
  const tokens = gauge("tokens");
  assert.deepEqual([tokens?.ended, tokens?.limit, tokens?.used, tokens?.needed], [true, 400, 330, 200]); // the limit is the one that ended it
  assert.deepEqual(tokens?.parts[3], { look: "reserved", amount: 70 });
  assert.deepEqual([gauge("cost")?.ended, gauge("cost")?.limit], [false, 0.5]);
  assert.isTrue(shown({}, undefined, { code: "MAX_ITERATIONS" })("iterations")?.ended);
  assert.isTrue(shown({}, undefined, { code: "MAX_ATTEMPTS_EXCEEDED" })("attempts")?.ended);
});

test("a limit of each turn is not held against all turns together", () => {
  const script = new Script();
  for (const input of ["One.", "Two."]) script.start(["lead"]).add("Input", { input, limits: { cost: 0.5 } }).say("Yes.").succeed().add("TurnEnded", { result: {} });
  const tree = new Tree(recording({ kind: "chat" }));
  tree.add(script.events);
  const cost = (step = tree.root.children[0]) => step && gaugesOf(tree.runs[0] as RunStep, partiesOf(tree, step), null, 1, true).find((each) => each.name === "cost");
  assert.deepEqual([cost()?.limit, cost(tree.root)?.limit, cost(tree.root)?.used], [0.5, null, 0.02]);
});

test("where not all of the time counts, it is not measured against its limit", () => {
  const { tree, lead } = crew({ seconds: 600, cost: 0.5 }, (script) => script.succeed());
  const all = gaugesOf(lead, partiesOf(tree, tree.root), null, 9_000, false);
  assert.deepEqual(all.filter((each) => each.name === "seconds" || each.name === "cost").map((each) => each.limit), [0.5, null]);
});
