import { assert, test } from "vitest";
import { align, iterations } from "../src/logic/compare.ts";
import { Tree } from "../src/logic/tree.ts";
import { recording, Script } from "./events.ts";

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
  assert.strictEqual(prefix.length, 1);
  assert.deepEqual(rest.map((pair) => [pair.a?.title ?? null, pair.b?.title ?? null, pair.isSame]), [["Two.", null, false], ["Three.", "Other.", false], ["End.", "End.", true]]);
});

test("what children did is no part of what is compared", () => {
  const script = new Script().start().say("I send one.", ["c", "subagent"]);
  script.start(["lead", "scout#1"], { tool_use_id: "c" }).say("Mine.").succeed();
  script.path = ["lead"];
  script.finish("c", "subagent", "{}").iteration = 2;
  const tree = new Tree(recording());
  tree.add(script.say("Done.").succeed().events);
  assert.deepEqual(iterations(tree).map((step) => step.title), ["I send one.", "Done."]);
  assert.deepEqual(align(tree, tree).rest, []);
});
