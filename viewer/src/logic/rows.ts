// The rows of a tree that can be seen: which are open, which are found, and what stands in each.

import { plural } from "./format.ts";
import type { RunStep, Step, Tree } from "./tree.ts";

export interface Row {
  key: string;
  step: Step;
  level: number;
  /** Whether it can be opened; an iteration of one call stands for that call, too. */
  canOpen: boolean;
  isOpen: boolean;
  /** The call that the row of an iteration stands for. */
  only: Step | null;
  isGrey: boolean;
  /** So many siblings that are not shown. */
  hidden: number;
}

export interface Shown {
  /** What somebody opened or closed, by key. */
  opened: Map<string, boolean>;
  filter: string;
  errorsOnly: boolean;
}

const FIRST = 10;
const LAST = 5;

/** The steps right below one, as rows: an only attempt, and the run at the root, have none of their own. */
export function below(step: Step): Step[] {
  const found: Step[] = [];
  const holdsRuns = step.kind === "root" || step.kind === "turn";
  const runs = holdsRuns ? step.children.filter((each) => each.kind === "run").length : 0;
  for (const child of step.children) {
    const isSingle = runs === 1 && child.kind === "run";
    const isOnlyAttempt = child.kind === "attempt" && child.run.attempts.length === 1;
    if (isSingle || isOnlyAttempt) found.push(...below(child));
    else found.push(child);
  }
  return found;
}

/** The call that the row of an iteration stands for: its only one, where there are no words. */
export function onlyCall(step: Step): Step | null {
  if (step.kind !== "iteration" || step.title) return null;
  const [first, ...more] = step.children;
  return first?.kind === "call" && more.length === 0 ? first : null;
}

export function childrenOf(step: Step): Step[] {
  const only = onlyCall(step);
  return below(only ?? step);
}

/** Open at first: what failed and what is live; else down to the runs. A long one stays closed. */
export function opensAtFirst(step: Step): boolean {
  if (step.hasFailure || step.state === "waits") return true;
  if (step.kind === "run" && step.parent?.kind === "call") return step.isLive;
  if (step.kind === "call") return true;
  if (step.kind === "turn" || step.kind === "attempt" || step.kind === "run") return true;
  if (step.kind === "iteration") return step.isLive || step.run.parent?.kind !== "call";
  return false;
}

export function titleOf(step: Step): { title: string; isMono: boolean; detail: string; isData: boolean } {
  if (step.kind !== "iteration") return step;
  if (step.title) return step;
  const only = onlyCall(step);
  if (only) return { title: only.title, isMono: true, detail: only.detail, isData: only.isData };
  const calls = step.children.filter((each) => each.kind === "call");
  if (calls.length) return { title: plural(calls.length, "call"), isMono: false, detail: [...new Set(calls.map((each) => each.title))].join(", "), isData: true };
  if (step.state === "live") return { title: step.words || "The model is asked", isMono: false, detail: "", isData: false };
  return { title: "No words", isMono: false, detail: step.detail, isData: false };
}

export function isFailing(step: Step): boolean {
  return step.state === "failed";
}

function matches(step: Step, filter: string): boolean {
  if (!filter) return true;
  const told = titleOf(step);
  return `${told.title} ${told.detail} ${step.detail} ${step.chip?.text ?? ""}`.toLowerCase().includes(filter);
}

/** All rows, in order. The second figure is how many of all steps were found. */
export function rowsOf(tree: Tree, shown: Shown): { rows: Row[]; found: number; all: number } {
  const filter = shown.filter.trim().toLowerCase();
  const isFiltered = filter !== "" || shown.errorsOnly;
  const rows: Row[] = [];
  let found = 0;
  let all = 0;

  function isFound(step: Step): boolean {
    return (!shown.errorsOnly || isFailing(step)) && matches(step, filter);
  }

  function walkFiltered(step: Step, level: number): boolean {
    let any = false;
    for (const child of childrenOf(step)) {
      all += 1;
      const only = onlyCall(child);
      const isHit = isFound(child) || (only !== null && isFound(only));
      const at = rows.length;
      rows.push({ key: child.key, step: child, level, canOpen: false, isOpen: true, only, isGrey: !isHit, hidden: 0 });
      const isBelow = walkFiltered(child, level + 1);
      if (isHit) found += 1;
      if (!isHit && !isBelow) rows.length = at;
      else {
        any = true;
        const row = rows[at];
        if (row) row.canOpen = isBelow;
      }
    }
    return any;
  }

  function walk(step: Step, level: number): void {
    const children = childrenOf(step);
    const shownAll = shown.opened.get(`${step.key}/more`) === true;
    const n = children.length;
    const isLong = n > FIRST + LAST + 5 && !shownAll;
    let hidden = 0;
    children.forEach((child, index) => {
      all += 1;
      const keeps = !isLong || index < FIRST || index >= n - LAST || child.state === "failed" || child.hasFailure || child.state === "waits";
      if (!keeps) {
        hidden += 1;
        return;
      }
      if (hidden) more(step, level, hidden);
      hidden = 0;
      const only = onlyCall(child);
      const canOpen = childrenOf(child).length > 0;
      const isOpen = canOpen && (shown.opened.get(child.key) ?? opensAtFirst(child));
      rows.push({ key: child.key, step: child, level, canOpen, isOpen, only, isGrey: false, hidden: 0 });
      if (isOpen) walk(child, level + 1);
    });
  }

  function more(step: Step, level: number, hidden: number): void {
    rows.push({ key: `${step.key}/more@${rows.length}`, step, level, canOpen: false, isOpen: false, only: null, isGrey: true, hidden });
  }

  if (isFiltered) walkFiltered(tree.root, 0);
  else walk(tree.root, 0);
  return { rows, found, all };
}

/** What is selected at first: what waits for a person, else the ending, else the newest. */
export function selectedAtFirst(tree: Tree): Step | null {
  if (tree.waits) return tree.waits;
  const endings = [...tree.steps.values()].filter((step) => step.kind === "ending");
  const ending = endings[endings.length - 1];
  if (ending) return ending;
  const runs = tree.runs.filter((run) => run.parent === tree.root || run.parent?.kind === "turn");
  const last: RunStep | undefined = runs[runs.length - 1];
  if (!last) return null;
  if (last.parent?.kind === "turn" && last.end !== null) return last.parent;
  return last.nowIteration ?? last;
}

/** Opens all that is above a step. */
export function reveal(step: Step, opened: Map<string, boolean>): void {
  const way = new Set<Step>([step]);
  for (let above = step.parent; above; above = above.parent) {
    opened.set(above.key, true);
    const siblings = below(above);
    const at = siblings.findIndex((each) => way.has(each));
    if (siblings.length > FIRST + LAST + 5 && at >= FIRST && at < siblings.length - LAST) opened.set(`${above.key}/more`, true);
    way.add(above);
  }
}
