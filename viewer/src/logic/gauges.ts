// What was used of what was allowed, and by whom.

import type { Facts, Usage } from "../api.ts";
import type { RunStep, Step, Tree } from "./tree.ts";
import { allTokens, number, object, sum, text } from "./values.ts";

export interface Party {
  run: RunStep;
  used: Usage;
  calls: number;
  mode: string;
  /** So many runs of this name. */
  times: number;
}

/** Which runs a step holds, itself first. */
export function partiesOf(tree: Tree, step: Step): Party[] {
  const top = step.kind === "turn" || step.kind === "root" ? step : step.run;
  const isInside = (run: RunStep) => {
    for (let at: Step | null = run; at; at = at.parent) if (at === top) return true;
    return false;
  };
  const merged = new Map<string, Party>();
  for (const run of tree.runs.filter(isInside)) {
    const path = run.path.join("/");
    const known = merged.get(path);
    if (known) merged.set(path, { ...known, run, used: sum(known.used, run.used), calls: known.calls + run.counted, times: known.times + 1 });
    else merged.set(path, { run, used: run.used, calls: run.counted, mode: run === top || run.path.length === 1 ? "itself" : run.mode, times: 1 });
  }
  return [...merged.values()];
}

export type Budget = "tokens" | "cost" | "seconds" | "calls" | "attempts" | "iterations";

export interface Part {
  look: "own" | "children" | "background" | "reserved";
  amount: number;
}

export interface Gauge {
  name: Budget;
  parts: Part[];
  /** All of it but what is reserved; null: not known. */
  used: number | null;
  limit: number | null;
  /** What the next model call would have needed. */
  needed: number | null;
  /** Whether it ended the run. */
  ended: boolean;
}

/** What ended a run, as one of its budgets. */
function endedBy(error: Facts | null): string {
  const code = error?.["code"];
  if (code === "BUDGET_EXCEEDED") return text(object(error?.["context"])["policy"]);
  return code === "MAX_ITERATIONS" ? "iterations" : code === "MAX_ATTEMPTS_EXCEEDED" ? "attempts" : "";
}

/** The limits of a run's own budget; none where what is shown is more than what one budget has counted. */
function limitsOf(run: RunStep, told: readonly Party[]): Facts {
  const own = told.filter((each) => each.mode === "itself");
  return own.length === 1 && own[0]?.times === 1 ? run.limits : {};
}

/** The budgets of a run. `seconds`: how long it took; `worksAllTheTime`: whether all of that counts. */
export function gaugesOf(run: RunStep, told: readonly Party[], error: Facts | null, seconds: number, worksAllTheTime: boolean): Gauge[] {
  const limits = limitsOf(run, told);
  const context = object(error?.["context"]);
  const end = endedBy(error);
  const lookOf = (mode: string) => (mode === "itself" ? "own" : mode === "background" ? "background" : "children");
  const parts = (amount: (each: Party) => number) =>
    (["own", "children", "background"] as const).map((look): Part => ({ look, amount: told.filter((each) => lookOf(each.mode) === look).reduce((n, each) => n + amount(each), 0) }));
  const gauge = (name: Budget, given: Part[] | null, limit: number | null): Gauge => {
    const ended = end === name;
    const most = (ended ? number(context["limit"]) : null) ?? limit; // what ended it may be the budget of an attempt, or of a run above
    const counted = given?.reduce((n, part) => n + part.amount, 0) ?? null;
    const used = (ended ? number(context["used"]) : null) ?? counted;
    const needed = ended ? number(context["needed"]) : null;
    const reserved = most === null || used === null ? 0 : Math.max(0, Math.min(needed ?? 0, most - used));
    return { name, parts: [...(given ?? []), { look: "reserved", amount: reserved }], used, limit: most, needed, ended };
  };
  const itself = (amount: number): Part[] => [{ look: "own", amount }];
  const last = run.attempts[run.attempts.length - 1];
  const iterations = last ? last.children.filter((each) => each.kind === "iteration" && each.answered !== null).length : 0;
  const hasCost = told.every((each) => each.used.cost !== null);
  const found = [
    gauge("tokens", parts((each) => allTokens(each.used)), number(limits["tokens"])),
    gauge("cost", hasCost ? parts((each) => each.used.cost ?? 0) : null, number(limits["cost"])),
    gauge("seconds", itself(seconds), worksAllTheTime ? number(limits["seconds"]) : null),
    gauge("calls", parts((each) => each.calls), number(limits["calls"])),
    gauge("attempts", itself(run.attempts.length), run.maxAttempts || null),
    gauge("iterations", itself(iterations), run.maxIterations || null),
  ];
  return found.filter((each) => each.name !== "calls" || each.limit !== null);
}
