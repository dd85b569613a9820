import { assert, test } from "vitest";
import { callText, inOrder, markdown, python, resultText } from "../src/logic/transcript.ts";
import { Script } from "./events.ts";

test("a conversation is copied as Markdown that nothing breaks out of, and as Python", () => {
  const script = new Script().add("MessageCommitted", { message: { role: "user", content: [{ type: "text", text: "Go." }] } });
  script.add("MessageCommitted", { message: { role: "user", content: [{ type: "tool_result", content: "a ```` b", is_error: true }] } });
  assert.strictEqual(markdown(script.events), "## User\n\nGo.\n\n## User\n\nResult (an error):\n\n`````\na ```` b\n`````\n");
  assert.match(python(script.events), /^from journeyman import load_messages\n\nmessages = load_messages\("\[\{\\"role\\":\\"user\\"/);
});

test("messages come in the order of the history, however they were told", () => {
  const [one, two] = new Script().add("MessageCommitted").add("MessageCommitted").events;
  assert(one && two);
  assert.deepEqual(inOrder(new Map([[7, two], [0, one]])), [one, two]);
});

test("a result of several parts is told as text, and a part that is none by its kind", () => {
  assert.strictEqual(resultText({ content: "plain" }), "plain");
  assert.strictEqual(resultText({ content: [{ type: "text", text: "one" }, { type: "image", source: {} }] }), "one\n[image]");
  assert.strictEqual(resultText({}), "");
});

test("the arguments of a call are told as they were written", () => {
  assert.deepEqual([{ input_json: '{"a": 1}' }, { input: { a: 1 } }, {}].map(callText), ['{"a": 1}', '{"a":1}', "{}"]);
});

test("thinking is not copied, and a call stands with its arguments", () => {
  const content = [{ type: "thinking", thinking: "Hm." }, { type: "text", text: "I look." }, { type: "tool_use", name: "look", input: { topic: "tides" } }];
  const script = new Script().add("MessageCommitted", { message: { role: "assistant", content } });
  assert.strictEqual(markdown(script.events), '## Assistant\n\nI look.\n\nCalls `look`:\n\n```json\n{"topic":"tides"}\n```\n');
});
