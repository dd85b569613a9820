// Two runs side by side, aligned by what was done and not by number.

import type { Step, Tree } from "./tree.ts";
import { object, text } from "./values.ts";
import { common } from "./diff.ts";

export interface Pair {
  a: Step | null;
  b: Step | null;
  isSame: boolean;
}

export interface Alignment {
  /** So many iterations at the beginning are the same. */
  prefix: Pair[];
  /** From the first difference on; empty if there is none. */
  rest: Pair[];
}

/** The iterations of the outermost runs, in order. */
export function iterations(tree: Tree): Step[] {
  const found: Step[] = [];
  for (const run of tree.runs) {
    if (run.path.length !== 1) continue;
    for (const attempt of run.attempts) for (const each of attempt.children) if (each.kind === "iteration") found.push(each);
  }
  return found;
}

/** All that was said and asked for in an iteration. */
function exactly(step: Step): string {
  const calls = step.children.filter((each) => each.kind === "call");
  return JSON.stringify([step.title, calls.map((call) => [call.title, object(call.called?.["tool_input"]), text(call.finished?.["tool_result"])])]);
}

/** What kind of thing was done, without what it said. */
function kindOf(step: Step): string {
  const calls = step.children.filter((each) => each.kind === "call").map((each) => each.title);
  return calls.length ? [...new Set(calls)].join(" ") : "words";
}

export function align(a: Tree, b: Tree): Alignment {
  const [left, right] = [iterations(a), iterations(b)];
  const [exactLeft, exactRight] = [left.map(exactly), right.map(exactly)];
  let same = 0;
  while (same < left.length && same < right.length && exactLeft[same] === exactRight[same]) same += 1;
  const prefix = left.slice(0, same).map((step, at): Pair => ({ a: step, b: right[at] ?? null, isSame: true }));
  const [restLeft, restRight] = [left.slice(same), right.slice(same)];
  const rest: Pair[] = [];
  let [i, j] = [0, 0];
  const alone = (upToI: number, upToJ: number) => {
    for (; i < upToI; i += 1) rest.push({ a: restLeft[i] ?? null, b: null, isSame: false });
    for (; j < upToJ; j += 1) rest.push({ a: null, b: restRight[j] ?? null, isSame: false });
  };
  for (const [x, y] of common(restLeft.map(kindOf), restRight.map(kindOf), false)) {
    alone(x, y);
    rest.push({ a: restLeft[x] ?? null, b: restRight[y] ?? null, isSame: exactLeft[same + x] === exactRight[same + y] });
    [i, j] = [x + 1, y + 1];
  }
  alone(restLeft.length, restRight.length);
  return { prefix, rest };
}
