// Forgetting runs: what would go is named before it goes, and whoever does not want that is one key away.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Run } from "../api";
import { type Failed, failureOf, forget } from "../client";
import { age, plural, size } from "../logic/format";
import { goesOn, stateOf } from "../logic/tree";
import { Problem, StateIcon, toast } from "./parts";

const NAMED = 8;

interface ForgetGiven {
  runs: Run[];
  /** Leave them; or only those that have not ended. */
  keep: (onlyOpen: boolean) => void;
  /** They are gone. */
  gone: () => void;
  /** They could not be forgotten: the list may be older than the store. */
  failed: () => void;
}

export function Forget({ runs, keep, gone, failed }: ForgetGiven) {
  const ref = useRef<HTMLDialogElement>(null);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Failed | null>(null);
  useLayoutEffect(() => ref.current?.showModal(), []);
  const many = plural(runs.length, "run");
  const bytes = runs.reduce((all, run) => all + run.bytes, 0);
  const durable = runs.filter((run) => run.kind === "durable").length;
  const open = runs.filter((run) => goesOn(run)).length;
  const send = async () => {
    setBusy(true);
    try {
      const told = await forget(runs.map((run) => run.id));
      toast(`${plural(told.forgotten, "run")} forgotten. ${told.notice ?? ""}`);
      gone();
    } catch (error) {
      setProblem(failureOf(error));
      setBusy(false);
      failed();
    }
  };
  return (
    <dialog ref={ref} class="forget" aria-labelledby="forget" onClose={() => keep(false)}>
      <h2 id="forget">Forget {many}?</h2>
      <ul>
        {runs.slice(0, NAMED).map((run) => (
          <li key={run.id}>
            <StateIcon state={stateOf(run.status, Boolean(run.waits))} /> <b>{run.agent}</b> <span>{run.input || <i class="mono">{run.id}</i>}</span> <span class="quiet">{age(run.started, Date.now() / 1000)}</span>
          </li>
        ))}
        {runs.length > NAMED && <li class="quiet">and {runs.length - NAMED} more</li>}
      </ul>
      <p>
        All that is stored of {runs.length === 1 ? "it" : "them"} goes: what happened, the requests and their answers, what was said{bytes > 0 && `, ${size(bytes)}`}.{" "}
        {durable > 0 && `${durable === runs.length ? (durable === 1 ? "It" : "They") : `${durable} of them`} cannot be resumed or forked any more. `}
        <b>Nothing brings this back.</b>
      </p>
      {problem && <Problem error={problem} />}
      <div class="buttons">
        <button type="button" autoFocus onClick={() => keep(false)}>
          Keep {runs.length === 1 ? "it" : "them"}
        </button>
        {problem && open > 0 && open < runs.length && (
          <button type="button" onClick={() => keep(true)}>
            Leave out what goes on
          </button>
        )}
        <span class="spacer" />
        <button type="button" class="danger" disabled={isBusy} onClick={() => void send()}>
          Forget {many}
        </button>
      </div>
    </dialog>
  );
}
