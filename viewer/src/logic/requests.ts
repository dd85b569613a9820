// The requests of a run: to which iteration each belongs, and how a shell would send one.

import type { Sent } from "../api.ts";
import type { RunStep, Tree } from "./tree.ts";
import { object, text } from "./values.ts";

/** The requests by the iteration that they belong to; of several, the last. */
export function requestsByStep(tree: Tree, requests: readonly Sent[]): Map<string, Sent> {
  const found = new Map<string, Sent>();
  const runs = new Map<string, RunStep[]>();
  for (const run of tree.runs) {
    const path = run.path.join("/");
    runs.set(path, [...(runs.get(path) ?? []), run]);
  }
  for (const sent of requests) {
    const known = runs.get(sent.path.join("/")) ?? [];
    let run = known[0];
    for (const each of known) if (each.start <= sent.at + 0.0005) run = each;
    if (run) found.set(stepKey(run, sent.attempt, sent.iteration), sent);
  }
  return found;
}

/** Where a request belongs: the same for its iteration. */
export function stepKey(run: RunStep, attempt: number, iteration: number): string {
  return `${run.key}/${attempt}.${iteration}`;
}

/** A request for a shell. The key is left out: it was never kept. */
export function curl(sent: Sent, body: string): string {
  const quoted = (told: string) => `'${told.replaceAll("'", "'\\''")}'`;
  const headers = Object.entries(object(sent.around["headers"]));
  const key = /anthropic/.test(sent.model) ? 'x-api-key: $ANTHROPIC_API_KEY' : /google/.test(sent.model) ? "x-goog-api-key: $GEMINI_API_KEY" : "authorization: Bearer $OPENAI_API_KEY";
  return [
    `curl ${quoted(text(sent.around["url"]))}`,
    `-H "${key}"`,
    ...headers.map(([name, value]) => `-H ${quoted(`${name}: ${text(value)}`)}`),
    `--data-binary ${quoted(body)}`,
  ].join(" \\\n  ");
}
