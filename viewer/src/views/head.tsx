// The head of a run: what it is about, how it ended or goes on, and its figures.

import { useEffect, useState } from "preact/hooks";
import { allowedMoney, clock, count, duration, exact, money, percent, utc } from "../logic/format";
import { goesOn, stateOf, type Tree } from "../logic/tree";
import { number, sentTokens } from "../logic/values";
import type { Recording } from "../recording";
import { Figure, StateIcon } from "./parts";

export function Head({ tree, recording, now }: { tree: Tree; recording: Recording; now: number }) {
  const run = recording.run ?? tree.recording;
  const waits = tree.waits;
  const main = tree.runs.find((each) => each.path.length === 1) ?? null;
  const sent = sentTokens(run.usage);
  const isLive = goesOn(run);
  const outermost = tree.runs.filter((each) => each.path.length === 1);
  const own = outermost.reduce((all, each) => all + each.used.requests, 0);
  /** What is allowed, while it matters. Not all the time of a durable run counts. */
  const most = (name: string) => (isLive && outermost.length === 1 && (name !== "seconds" || run.kind !== "durable") ? number(outermost[0]?.limits[name]) : null);
  const title = run.input || main?.input || `${run.agent}, without input`;
  const attempt = main?.nowAttempt?.attempt ?? 0;
  const iteration = main?.nowIteration?.iteration ?? 0;
  return (
    <section class="head" aria-label="This run">
      <h1>
        <StateIcon state={stateOf(run.status === "left" && run.code ? "failed" : run.status, waits !== null && isLive)} isGood={run.status === "done"} />
        <span>{title}</span>
      </h1>
      <p class="figures">
        {isLive ? (
          <Figure name="state">
            <span class={waits ? "wait" : "accent"}>{waits?.waiting ? `waits for you, ${duration(now - waits.waiting.event.at)}` : run.status}</span>
          </Figure>
        ) : (
          <Figure name="ended">
            <span class={`mono ${run.code ? "bad" : run.status === "done" ? "good" : ""}`}>{run.code ?? (run.status === "done" ? "SUCCESS" : run.status)}</span>
          </Figure>
        )}
        {run.kind === "chat" ? (
          <Figure name="turns">{count(tree.root.children.filter((each) => each.kind === "turn").length)}</Figure>
        ) : (
          <Figure name="attempt">{`${run.attempts} of ${main?.maxAttempts ?? "?"}`}</Figure>
        )}
        {isLive && iteration > 0 ? (
          <Figure name="iteration">{`${iteration} of ${main?.maxIterations ?? "?"}${attempt > 1 ? `, attempt ${attempt}` : ""}`}</Figure>
        ) : (
          <Figure name="iterations">
            {count(run.iterations)} {own !== run.iterations && own > 0 && <span class="name">{own} its own</span>}
          </Figure>
        )}
        {run.children > 0 ? <Figure name="children">{count(run.children)}</Figure> : <Figure name="calls">{count(run.calls)}</Figure>}
        <Figure name="in" title={exact(sent)}>
          {sent < 100_000 ? exact(sent) : count(sent)}
        </Figure>
        <Figure name="cached">{percent(run.usage.cache_read_tokens, sent)}</Figure>
        <Figure name="out" title={exact(run.usage.output_tokens)}>
          {run.usage.output_tokens < 100_000 ? exact(run.usage.output_tokens) : count(run.usage.output_tokens)}
        </Figure>
        <Figure name="cost">
          {money(run.usage.cost)} {most("cost") !== null && <span class="name">of {allowedMoney(most("cost"))}</span>}
        </Figure>
        <Figure name={isLive ? "for" : "took"}>
          {duration((isLive ? now : (run.ended ?? run.seen)) - run.started)} {most("seconds") !== null && <span class="name">of {duration(most("seconds"))}</span>}
        </Figure>
        <Figure name="began" title={utc(run.started)}>
          {clock(run.started)}
        </Figure>
      </p>
    </section>
  );
}

export function useNow(isLive: boolean): number {
  const [now, set] = useState(Date.now() / 1000);
  useEffect(() => {
    if (!isLive) return;
    const timer = window.setInterval(() => set(Date.now() / 1000), 250);
    return () => window.clearInterval(timer);
  }, [isLive]);
  return now;
}
