// A run as a row of the list.

import type { Run } from "../api";
import { age, count, duration, exact, money, percent, plural, utc } from "../logic/format";
import { goesOn, stateOf } from "../logic/tree";
import { sentTokens } from "../logic/values";
import { go, href } from "../route";
import { StateIcon } from "./parts";

interface RunRowGiven {
  run: Run;
  top: number;
  isNarrow: boolean;
  isSelecting: boolean;
  isHere: boolean;
  isSelected: boolean;
  toggle: (isRange: boolean) => void;
}

function ending(run: Run): { told: string; look: string } {
  if (run.waits) return { told: `waits for ${run.waits}`, look: "wait" };
  if (goesOn(run) && run.status !== "running") return { told: run.status, look: run.status === "blocked" ? "bad" : "wait" };
  if (goesOn(run)) return { told: `attempt ${Math.max(run.attempts, 1)} · iteration ${run.iterations}`, look: "accent" };
  if (run.status === "died") return { told: "its process died", look: "bad" };
  if (run.code) return { told: run.code, look: run.code === "EXECUTION_CANCELLED" ? "mono quiet" : "mono bad" };
  if (run.status === "done") return { told: "SUCCESS", look: "mono" };
  return { told: run.status, look: "" };
}

export function RunRow({ run, top, isNarrow, isSelecting, isHere, isSelected, toggle }: RunRowGiven) {
  const sent = sentTokens(run.usage);
  const now = Date.now() / 1000;
  const told = ending(run);
  const state = stateOf(run.status === "left" && run.code ? "failed" : run.status, Boolean(run.waits));
  const took = (goesOn(run) ? now : (run.ended ?? run.seen)) - run.started;
  const place = { transform: `translateY(${top}px)` };
  const look = `rrow${isHere ? " here" : ""}${isSelected ? " selected" : ""}`;
  const open = (event: MouseEvent) => {
    if ((event.target as HTMLElement).closest("input,a,label") || event.metaKey || event.ctrlKey) return;
    if (isSelecting) toggle(event.shiftKey);
    else go({ run: run.id });
  };
  const cached = percent(run.usage.cache_read_tokens, sent);
  if (isNarrow) {
    const inShort = told.look === "mono" ? [plural(run.attempts, "attempt"), plural(run.iterations, "iteration"), run.children ? `${run.children} children` : ""].filter(Boolean).join(", ") : told.told;
    return (
      <div class={`${look} two`} role="row" style={place} onClick={open}>
        <span role="cell">{isSelecting ? <input type="checkbox" checked={isSelected} aria-label={`Select ${run.agent}`} onClick={(event) => toggle(event.shiftKey)} /> : <StateIcon state={state} />}</span>
        <span class="first" role="cell">
          <a href={href({ run: run.id })} onClick={(event) => (event.preventDefault(), go({ run: run.id }))}>
            {run.agent}
          </a>{" "}
          {run.input}
        </span>
        <span class="second" role="cell">
          <span class={told.look === "mono" ? "quiet" : told.look}>{inShort}</span>
          <span class="num">{money(run.usage.cost)}</span>
          <span class="num quiet">{duration(took)}</span>
          <span class={`num ${goesOn(run) ? "accent" : "quiet"}`}>{goesOn(run) ? run.status : age(run.started, now).replace(" ago", "")}</span>
        </span>
      </div>
    );
  }
  return (
    <div class={look} role="row" style={place} onClick={open}>
      <span role="cell" class="box">
        <input type="checkbox" checked={isSelected} aria-label={`Select ${run.agent}, ${run.input.slice(0, 40)}`} onClick={(event) => toggle(event.shiftKey)} />
      </span>
      <span role="cell">
        <StateIcon state={state} />
      </span>
      <span role="cell" class="agent">
        <a href={href({ run: run.id })} onClick={(event) => (event.preventDefault(), go({ run: run.id }))}>
          {run.agent}
        </a>
      </span>
      <span role="cell" class="input">
        {run.input || (run.has_content ? "" : "not recorded")}
      </span>
      <span role="cell" class={told.look}>
        {told.told}
      </span>
      <span role="cell" class={`num${run.attempts > 1 ? " strong" : ""}`}>
        {count(run.attempts)}
      </span>
      <span role="cell" class="num">
        {count(run.iterations)}
      </span>
      <span role="cell" class="num">
        {run.children ? count(run.children) : ""}
      </span>
      <span role="cell" class="num" title={exact(sent)}>
        {count(sent)}
      </span>
      <span role="cell" class="num cached">
        {cached}{" "}
        <i class={`mini${sent ? "" : " none"}`}>
          <b style={{ width: sent ? `${(100 * run.usage.cache_read_tokens) / sent}%` : "0" }} />
        </i>
      </span>
      <span role="cell" class="num">
        {count(run.usage.output_tokens)}
      </span>
      <span role="cell" class="num dark">
        {money(run.usage.cost)}
      </span>
      <span role="cell" class="num">
        {duration(took)}
      </span>
      <span role="cell" class="num quiet" title={utc(run.started)}>
        {age(run.started, now)}
      </span>
    </div>
  );
}
