// Drives a served agent with the official AG-UI client, and prints what the client made of it, as JSON.
import { HttpAgent } from "@ag-ui/client";

const [url, prompt, mode] = process.argv.slice(1);
const seen = [];
const opened = () => new HttpAgent({
  url, threadId: `thread-${mode}`, initialMessages: [{ id: "m1", role: "user", content: prompt }],
});
let agent = opened();
const watch = {
  onEvent: ({ event }) => { seen.push(event.type); },
  onRunFinishedEvent: (given) => { outcome = given; },
  onRunFailed: ({ error }) => { failed = String(error); },
};
let outcome, failed;

if (mode === "reconnect") {
  // The connection is lost, and the page that is loaded anew asks for the same run. It knows nothing of the old one,
  // which may have been told all of the run in the moment in which it was cut off.
  const cut = { ...watch, onEvent: ({ event }) => { seen.push(event.type); if (event.type === "TOOL_CALL_START") agent.abortRun(); } };
  await agent.runAgent({ runId: "r1" }, cut).catch(() => {});
  seen.push("RECONNECT");
  agent = opened();
}
const parameters = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const tools = mode === "tools" ? [{ name: "paint", description: "Paint the page.", parameters }] : [];
await agent.runAgent({ runId: "r1", tools }, watch);
const calls = mode === "tools" ? agent.messages.flatMap(({ toolCalls }) => toolCalls ?? []) : [];
if (calls.length) {
  for (const { id, function: { arguments: given } } of calls) {
    agent.addMessage({ id: `t${id}`, role: "tool", toolCallId: id, content: `It is ${JSON.parse(given).name}.` });
  }
  seen.push("RESULTS");
  await agent.runAgent({ runId: "r2", tools }, watch);
}
while (outcome?.outcome === "interrupt") {
  const resume = outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  seen.push("RESUME");
  outcome = undefined;
  await agent.runAgent({ runId: `r${seen.length}`, resume }, watch);
}
const messages = agent.messages.map(({ role, content, toolCalls }) => ({ role, content, tools: toolCalls?.map((each) => each.function) }));
console.log(JSON.stringify({ seen, messages, state: agent.state, outcome: outcome?.outcome, result: outcome?.result, failed }));
