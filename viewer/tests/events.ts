// Events as the server sends them, for tests.

import type { Facts, Happened, Json, Piece, Run, Sent } from "../src/api.ts";

export function recording(some: Partial<Run> = {}): Run {
  const usage = { requests: 0, input_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0, output_tokens: 0, reasoning_tokens: 0, cost: 0 };
  return {
    id: "r1", kind: "run", agent: "lead", model: "m", input: "Go.", has_content: true, started: 100, seen: 200, ended: 200, status: "done",
    code: null, attempts: 1, iterations: 1, calls: 0, children: 0, usage, bytes: 0, dropped: 0, why: null, ...some,
  };
}

/** Writes events down one after the other, a second apart. */
export class Script {
  readonly events: Happened[] = [];
  path = ["lead"];
  attempt = 1;
  iteration = 1;

  add(type: string, facts: Facts = {}, more: Partial<Happened> = {}): this {
    const n = this.events.length + 1;
    this.events.push({ ...facts, n, at: 100 + n, path: this.path, type, attempt: this.attempt, iteration: this.iteration, ...more });
    return this;
  }

  start(path = this.path, more: Partial<Happened> = {}): this {
    this.path = path;
    return this.add("RunStarted", { agent: path[path.length - 1] ?? "", model: "p:m", max_attempts: 3, max_iterations: 9 }, { attempt: 0, iteration: 0, ...more });
  }

  /** An iteration: what is said, and the calls, each by its tool. */
  say(words: string, ...calls: [id: string, tool: string, input?: Facts, kind?: string][]): this {
    this.add("IterationStarted");
    const content: Json[] = words ? [{ type: "text", text: words }] : [];
    for (const [id, name] of calls) content.push({ type: "tool_use", id, name });
    this.add("MessageCommitted", { message: { role: "assistant", content }, index: this.events.length }, { attempt: 0, iteration: 0 });
    this.add("ModelResponded", { stop_reason: calls.length ? "tool_use" : "end_turn", text: words, model: "m", usage: { requests: 1, input_tokens: 100, output_tokens: 10, cost: 0.01 } });
    for (const [id, tool, input = {}, kind = "tool"] of calls) this.add("ToolCalled", { kind, tool_input: input }, { tool_use_id: id, tool_name: tool });
    return this;
  }

  finish(id: string, tool: string, result: string, isError = false, kind = "tool"): this {
    return this.add("ToolFinished", { kind, tool_result: result, is_error: isError, cached: false, duration_s: 0.5 }, { tool_use_id: id, tool_name: tool });
  }

  layer(name: string, passed: boolean, feedback = ""): this {
    this.add("LayerStarted", { name, description: "", kind: "validator" }, { iteration: 0 });
    return this.add("LayerCompleted", { outcome: { name, kind: "validator", description: "", passed, feedback } }, { iteration: 0 });
  }

  succeed(): this {
    this.add("AttemptCompleted", { succeeded: true }, { iteration: 0 });
    return this.add("RunSucceeded", { output: "done", metadata: {} }, { attempt: 0, iteration: 0 });
  }

  fail(code: string, context: Facts = {}): this {
    this.add("AttemptCompleted", { succeeded: false }, { iteration: 0 });
    return this.add("RunFailed", { error: { code, category: "limit", message: "It is over.", hint: "Do less.", phase: "iteration", attempt: 1, iteration: 1, context }, metadata: {} }, { attempt: 0, iteration: 0 });
  }
}

export function sent(n: number, usage: Facts, more: Partial<Sent> = {}): Sent {
  return { run: "", n, at: 100 + n, path: ["lead"], attempt: 1, iteration: n, form: "http", model: "anthropic:m", size: 10, around: {}, answer: { usage }, ...more };
}

export function pieces(body: Json): Piece[] {
  const text = JSON.stringify(body);
  const middle = Math.floor(text.length / 2);
  return [text.slice(0, middle), text.slice(middle)].map((each, number) => ({ number, size: each.length, body: each }));
}
