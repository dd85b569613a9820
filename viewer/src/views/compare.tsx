// Two runs: where they part, and what differs from there on. Neither is the better one.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Run, Sent } from "../api";
import { requestOf } from "../client";
import { align, type Pair } from "../logic/compare";
import { beside, lines } from "../logic/diff";
import { count, duration, exact, firstLine, money, percent, plural, shortId } from "../logic/format";
import { requestsByStep, stepKey } from "../logic/requests";
import { isCounted, type Step, type Tree } from "../logic/tree";
import { sentTokens, text } from "../logic/values";
import { titleOf } from "../logic/rows";
import { type Recording, useRecording } from "../recording";
import { go, type Route } from "../route";
import { FigureTable, Loading, Problem, StateIcon, To, useAsked } from "./parts";
import { HelpButton, LinkButton, Where } from "./top";

export function Compare({ route }: { route: Route }) {
  const [one = "", other = ""] = (route["compare"] ?? "").split(",");
  const a = useRecording(one);
  const b = useRecording(other);
  useEffect(() => {
    document.title = "Compare · journeyman";
  }, []);
  const isReady = a.isWhole && b.isWhole && a.tree && b.tree && a.run && b.run;
  return (
    <div class="page">
      <header class="top">
        <Where name="Compare">
          <i class="slash wideonly">/</i>
          <span class="mono id wideonly">
            {shortId(one)} {shortId(other)}
          </span>
        </Where>
        <span class="actions">
          <button type="button" class="plain" onClick={() => go({ compare: `${other},${one}` }, true)}>
            Swap
          </button>
          <LinkButton />
          <HelpButton />
        </span>
      </header>
      <main class="compare" tabIndex={0} aria-label="Compare two runs">
        {a.error || b.error ? (
          <>
            <h1 class="sr">These runs cannot be compared</h1>
            {a.error && <Problem error={a.error} />}
            {b.error && <Problem error={b.error} />}
          </>
        ) : isReady && a.run && b.run && a.tree && b.tree ? (
          <Both a={a} b={b} runs={[a.run, b.run]} trees={[a.tree, b.tree]} />
        ) : (
          <>
            <h1 class="sr">Loading two runs</h1>
            <Loading />
          </>
        )}
      </main>
    </div>
  );
}

function code(run: Run) {
  return <span class={`mono ${run.code ? "bad" : run.status === "done" ? "good" : ""}`}>{run.code ?? (run.status === "done" ? "SUCCESS" : run.status)}</span>;
}

function difference(one: number, other: number, isShare: boolean): string {
  if (!isShare) return other === one ? "" : `${other > one ? "+" : "−"}${exact(Math.abs(other - one))}`;
  if (!one || one === other) return "";
  const share = Math.round((100 * (other - one)) / one);
  return share === 0 ? "" : `${share > 0 ? "+" : "−"}${Math.abs(share)} %`;
}

/** The figures of both runs, and by how much they differ. */
function Head({ runs }: { runs: [Run, Run] }) {
  const [one, other] = runs;
  const same = [one.agent === other.agent ? "agent" : "", one.input === other.input ? "input" : "", one.model === other.model ? "model" : ""].filter(Boolean);
  const took = (run: Run) => (run.ended ?? run.seen) - run.started;
  const figures: [string, (run: Run) => string, string][] = [
    ["Attempts", (run) => count(run.attempts), difference(one.attempts, other.attempts, false)],
    ["Iterations", (run) => count(run.iterations), difference(one.iterations, other.iterations, false)],
    ["Calls", (run) => count(run.calls), difference(one.calls ?? 0, other.calls ?? 0, false)],
    ["In", (run) => exact(sentTokens(run.usage)), difference(sentTokens(one.usage), sentTokens(other.usage), true)],
    ["Cached", (run) => percent(run.usage.cache_read_tokens, sentTokens(run.usage)), ""],
    ["Out", (run) => exact(run.usage.output_tokens), difference(one.usage.output_tokens, other.usage.output_tokens, true)],
    ["Cost", (run) => money(run.usage.cost), difference(one.usage.cost ?? 0, other.usage.cost ?? 0, true)],
    ["Time", (run) => duration(took(run)), difference(took(one), took(other), true)],
  ];
  const rows = runs.map((run, n) => ({
    key: String(n),
    name: (
      <>
        <Side n={n} /> <To to={{ run: run.id }} class="mono quiet">{shortId(run.id)}</To>
      </>
    ),
    figures: [code(run), ...figures.map(([, told]) => told(run))],
  }));
  return (
    <section class="comparehead">
      <h1>
        <span>{one.input || one.agent}</span> {same.length > 0 && <span class="chip plain">the same {same.join(", ").replace(/, ([^,]*)$/, " and $1")}</span>}
      </h1>
      <FigureTable
        label="Figures of both runs"
        first="run"
        columns={["Ending", ...figures.map(([name]) => name)]}
        rows={[...rows, { key: "change", look: "quiet", name: "B against A", figures: ["", ...figures.map(([, , change]) => change)] }]}
      />
    </section>
  );
}

function Both({ a, b, runs, trees }: { a: Recording; b: Recording; runs: [Run, Run]; trees: [Tree, Tree] }) {
  const { prefix, rest } = useMemo(() => align(...trees), [trees[0].version, trees[1].version]);
  const [isOpen, set] = useState(false);
  const first = rest[0];
  return (
    <>
      <Head runs={runs} />
      <div class="pairs">
        <div class="pair sticky">
          <span class="nth" />
          {runs.map((run, n) => (
            <span class="side" key={n}>
              <Side n={n} /> <b>{run.agent}</b> {code(run)}
            </span>
          ))}
        </div>
        {prefix.length > 0 && (
          <button type="button" class="samerow" aria-expanded={isOpen} onClick={() => set(!isOpen)}>
            <span class={`tri ${isOpen ? "open" : "closed"}`} /> <SameInBoth prefix={prefix} />
          </button>
        )}
        {isOpen && prefix.map((pair, at) => <PairRow key={at} pair={pair} runs={runs} />)}
        {first ? (
          <h2 class="parting">
            <b>First divergence: {nameOf(first.a ?? first.b)}</b>{" "}
            <SameBytes a={a} b={b} pair={firstOfBoth(rest)} trees={trees} />
          </h2>
        ) : (
          <h2 class="parting">
            <b>No divergence:</b> both did the same.
          </h2>
        )}
        {rest.map((pair, at) => (
          <PairRow key={at} pair={pair} runs={runs} />
        ))}
        <div class="pair">
          <span class="nth">end</span>
          {runs.map((run, n) => (
            <span class="side" key={n}>
              <StateIcon state={run.code ? "failed" : "done"} isGood={!run.code} /> {code(run)} <span class="quiet">{endingOf(trees[n] as Tree)}</span>
            </span>
          ))}
        </div>
      </div>
    </>
  );
}

/** What was the same: as an attempt where it is all of one, and how long it took on each side. */
function SameInBoth({ prefix }: { prefix: Pair[] }) {
  const steps = prefix.flatMap((pair) => (pair.a ? [pair.a] : []));
  const calls = steps.reduce((n, step) => n + step.children.filter(isCounted).length, 0);
  const attempts = new Set(steps.map((step) => step.attempt));
  const whole = attempts.size === 1 && steps.length === steps[0]?.parent?.children.filter((each) => each.kind === "iteration").length;
  const took = (side: "a" | "b") => {
    const [first, last] = [prefix[0]?.[side], prefix[prefix.length - 1]?.[side]];
    return duration(first && last && last.end !== null ? last.end - first.start : null);
  };
  return (
    <>
      {whole && <span>Attempt {steps[0]?.attempt}</span>}{" "}
      <span class={whole ? "quiet" : ""}>
        {plural(steps.length, "iteration")}, {plural(calls, "call")}
      </span>{" "}
      <span class="quiet">the same in both</span>
      <span class="spacer" />
      <span class="quiet">
        {took("a")} and {took("b")}
      </span>
    </>
  );
}

function endingOf(tree: Tree): string {
  const run = tree.runs.findLast((each) => each.path.length === 1);
  return run?.error ? firstLine(text(run.error["message"]), 120) : "";
}

function Side({ n }: { n: number }) {
  return <span class={`letter ${n ? "b" : "a"}`}>{n ? "B" : "A"}</span>;
}

function nameOf(step: Step | null): string {
  return step ? `attempt ${step.attempt}, iteration ${step.iteration}` : "";
}

function firstOfBoth(rest: Pair[]): { a: Step | null; b: Step | null } {
  return { a: rest.find((pair) => pair.a)?.a ?? null, b: rest.find((pair) => pair.b)?.b ?? null };
}

function SameBytes({ a, b, pair, trees }: { a: Recording; b: Recording; pair: { a: Step | null; b: Step | null }; trees: [Tree, Tree] }) {
  const sentOf = (recording: Recording, tree: Tree, step: Step | null) =>
    step ? requestsByStep(tree, recording.requests).get(stepKey(step.run, step.attempt, step.iteration)) : undefined;
  const numbersOf = async (recording: Recording, { n }: Sent) => (await requestOf(recording.id, n)).pieces.map((piece) => piece.number).join();
  const read = () => {
    const [one, other] = [sentOf(a, trees[0], pair.a), sentOf(b, trees[1], pair.b)];
    return one && other ? Promise.all([numbersOf(a, one), numbersOf(b, other)]) : null;
  };
  const { value, error } = useAsked(read, pair.a?.key, pair.b?.key, a.requests, b.requests);
  if (error) return <span>the requests could not be read</span>;
  return <span>{value && (value[0] === value[1] ? "the same request, byte for byte; another answer" : "the requests differ, too")}</span>;
}

function PairRow({ pair, runs }: { pair: Pair; runs: [Run, Run] }) {
  const [isOpen, set] = useState(pair.a !== null && pair.b !== null && !pair.isSame);
  const [one, other] = [previewOf(pair.a), previewOf(pair.b)];
  const rows = useMemo(() => (isOpen && one && other && one !== other ? beside(lines(one, other)).filter((row) => row.before !== row.after).slice(0, 60) : []), [isOpen, one, other]);
  const number = (step: Step | null) => (step ? `${step.attempt}.${step.iteration}` : "–");
  return (
    <>
      <div class={`pair${rows.length ? " lit" : ""}`} onClick={() => set(!isOpen)}>
        <span class="nth">
          <span>{number(pair.a)}</span>
          {number(pair.a) !== number(pair.b) && <span>{number(pair.b)}</span>}
        </span>
        {[pair.a, pair.b].map((step, n) => (step ? <StepSide key={n} step={step} run={runs[n] as Run} /> : <span class="side absent" key={n} aria-label="nothing" role="img" />))}
      </div>
      {rows.length > 0 && (
        <div class="pair text">
          <span class="nth" />
          {(["before", "after"] as const).map((side) => (
            <pre class="side" key={side}>
              {rows.map((row, n) => {
                const line = row[side];
                return (
                  <div key={n}>{line ? line.words ? line.words.map((word, at) => (word.isMarked ? <mark class="accent" key={at}>{word.text}</mark> : word.text)) : <mark class="accent">{line.text}</mark> : " "}</div>
                );
              })}
            </pre>
          ))}
        </div>
      )}
    </>
  );
}

function previewOf(step: Step | null): string {
  const call = step?.children.find((each) => each.draft && each.called?.["kind"] === "output");
  return call ? text(call.finished?.["tool_result"]) : "";
}

function StepSide({ step, run }: { step: Step; run: Run }) {
  const told = titleOf(step);
  const feedback = step.children.flatMap((call) => (call.verdict?.layers.some((layer) => layer.passed === false) ? [call.verdict.feedback] : []));
  return (
    <span class="side">
      <span class="said">
        <To to={{ run: run.id, at: step.key }}>{told.title}</To>
        <span class="num">{money(step.used.cost)}</span>
        <span class="num">{duration(step.end === null ? null : step.end - step.start)}</span>
      </span>
      {step.children
        .filter((each) => each.kind === "call")
        .map((call) => (
          <span class="callrow" key={call.key}>
            <StateIcon state={call.state} isRejected={call.chip?.text === "rejected"} /> <span class="mono">{call.title}</span> {call.chip && /rejected|accepted/.test(call.chip.text) && <span class={`chip ${call.chip.look}`}>{call.chip.text}</span>}{" "}
            {call.chip?.text !== "rejected" && <span class={call.isData ? "mono quiet" : "quiet"}>{call.detail}</span>}
          </span>
        ))}
      {feedback.map((each, n) => (
        <span class="mono feedback" key={n}>
          {each}
        </span>
      ))}
    </span>
  );
}
