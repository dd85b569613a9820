// How a run ended, what it used, by whom, and how near its limits it was.

import { type ComponentChildren, Fragment } from "preact";
import type { Facts, Usage } from "../api";
import { parsed } from "../client";
import { allowedMoney, count, DASH, duration, exact, money, percent } from "../logic/format";
import { type Gauge, gaugesOf, type Party, partiesOf } from "../logic/gauges";
import { isCounted, type RunStep, type Step, type Tree } from "../logic/tree";
import { allTokens, isObject, NOTHING, number, object, sentTokens, sum, text, usage } from "../logic/values";
import type { Recording } from "../recording";
import { VerdictView } from "./draft";
import { WhoDidWhat } from "./operators";
import { type PaneGiven, ResultView, useEntire } from "./pane";
import { FigureTable, type FigureTableGiven, JsonView, StateIcon } from "./parts";

function GaugeRow({ gauge, told }: { gauge: Gauge; told: ComponentChildren }) {
  const { name, parts, limit, ended } = gauge;
  const used = parts.reduce((all, part) => all + part.amount, 0);
  const whole = Math.max(limit ?? used, used, 1e-9);
  return (
    <div class={`gauge${ended ? " ended" : ""}`}>
      <span class="name">{name}</span>
      <span class={`track${limit !== null ? "" : parts.filter((part) => part.amount > 0).length < 2 ? " open" : " share"}`}>
        {parts.map((part, n) => part.amount > 0 && <b key={n} class={part.look} style={{ width: `${(100 * part.amount) / whole}%` }} />)}
        {ended && <b class="end" />}
      </span>
      <span class="told">{told}</span>
    </div>
  );
}

export function EndingPane({ step, tree, recording }: PaneGiven) {
  const run = step.kind === "turn" ? ((step.children.findLast((each) => each.kind === "run") as RunStep | undefined) ?? step.run) : step.run;
  const ended = useEntire(recording, run.ended);
  const error = run.ended?.type === "RunFailed" && (step.kind !== "attempt") ? object(ended?.["error"]) : null;
  const told = partiesOf(tree, step);
  const all = told.reduce((used, each) => sum(used, each.used), NOTHING);
  const metadata = object(ended?.["metadata"]);
  const output = ended?.["output"];
  if (step.kind === "attempt") return <AttemptPane step={step} tree={tree} />;
  return (
    <>
      {error && <ErrorBox error={error} />}
      {!error && output !== undefined && step.kind !== "run" && (
        <section>
          <h3>What was handed in</h3>
          {isObject(output) || Array.isArray(output) || parsed(output) !== undefined ? <JsonView value={typeof output === "string" ? (parsed(output) ?? output) : output} /> : <p class="words">{text(output)}</p>}
        </section>
      )}
      {!error && output !== undefined && step.kind === "run" && <ResultView value={output} isError={false} />}
      <Gauges run={run} told={told} error={error} metadata={metadata} recording={recording} />
      {recording.signals.length > 0 && <WhoDidWhat recording={recording} tree={tree} />}
      {told.length > 1 && <ByChild told={told} all={all} />}
      <div class="columns">
        <ByTool tree={tree} told={told} />
        <ByModel told={told} />
      </div>
    </>
  );
}

function AttemptPane({ step, tree }: { step: Step; tree: Tree }) {
  const draft = step.verdict?.call?.draft?.call.called?.["tool_input"];
  const iterations = step.children.filter((each) => each.kind === "iteration").length;
  return (
    <>
      <p class="words">
        {step.title} took {duration(step.end === null ? null : step.end - step.start)}, {count(iterations)} iterations, {exact(allTokens(step.used))} tokens and {money(step.used.cost)}.
      </p>
      {step.verdict && <VerdictView tree={tree} verdict={step.verdict} draft={object(draft)} />}
    </>
  );
}

function ErrorBox({ error }: { error: Facts }) {
  const context = object(error["context"]);
  const facts: [string, string][] = [
    ...Object.entries(context)
      .filter(([, value]) => typeof value !== "object" && String(value).length < 60)
      .map(([name, value]): [string, string] => [name.replaceAll("_", " "), typeof value === "number" ? value.toLocaleString("en-US") : text(value)]),
    ["attempt", text(error["attempt"])],
    ["iteration", text(error["iteration"])],
    ["phase", text(error["phase"])],
    ["category", text(error["category"])],
  ];
  return (
    <section class="errorbox" aria-label="Error">
      <p class="words">{text(error["message"])}</p>
      <p>{text(error["hint"])}</p>
      <p class="figures small">
        {facts.filter(([, value]) => value).map(([name, value]) => (
          <span class="figure" key={name}>
            <span class="name">{name}</span> <span class="mono">{value}</span>
          </span>
        ))}
      </p>
    </section>
  );
}

/** How much it was, and of how much, in the unit of the budget. */
function figures({ name, used, limit, needed, ended }: Gauge, place: string): ComponentChildren {
  const written = (n: number | null) => (n === null ? DASH : name === "cost" ? money(n) : name === "seconds" ? (limit === null ? duration(n) : n.toFixed(1)) : exact(n));
  if (limit === null) return name === "attempts" || name === "iterations" ? `${written(used)} of ?${place}` : written(used);
  const most = name === "cost" ? allowedMoney(limit) : exact(limit);
  const rest = !ended || used === null || name === "attempts" || name === "iterations" ? "" : needed !== null ? ` · ${written(needed)} needed` : ` · ${written(Math.max(0, limit - used))} left`;
  return (
    <>
      {ended ? <b class="bad">{written(used)}</b> : written(used)} <span>{`of ${most}${rest}${place}`}</span>
    </>
  );
}

function Gauges({ run, told, error, metadata, recording }: { run: RunStep; told: Party[]; error: Facts | null; metadata: Facts; recording: Recording }) {
  const seconds = (run.end ?? recording.run?.seen ?? run.start) - run.start;
  const gauges = gaugesOf(run, told, error, seconds, recording.run?.kind !== "durable"); // between its lives, a durable run's clock stands still
  const has = (look: string) => gauges.some(({ parts }) => parts.some((part) => part.look === look && part.amount > 0));
  return (
    <section class="gauges" aria-label="Budgets">
      <h3>
        Budgets <span>of this run{told.length > 1 ? " and all below" : ""}</span>
        <span class="legend">
          <i class="own" /> itself{" "}
          {["children", "background", "reserved"].filter(has).map((look) => (
            <Fragment key={look}>
              <i class={look} /> {look}{" "}
            </Fragment>
          ))}
        </span>
      </h3>
      {gauges.map((gauge) => (
        <GaugeRow key={gauge.name} gauge={gauge} told={figures(gauge, gauge.name === "iterations" ? ` in ${run.attempts.length > 1 ? "the last" : "this"} attempt` : "")} />
      ))}
      {number(metadata["overshoot_tokens"]) ? <p class="quiet">{exact(number(metadata["overshoot_tokens"]))} tokens beyond what was reserved.</p> : null}
    </section>
  );
}

function UsageTable({ by, ...table }: { by: string } & Omit<FigureTableGiven, "label" | "first">) {
  if (table.rows.length === 0) return null;
  return (
    <section>
      <h3>By {by}</h3>
      <FigureTable label={`Usage by ${by}`} first={by} {...table} />
    </section>
  );
}

function ByChild({ told, all }: { told: Party[]; all: Usage }) {
  const start = Math.min(...told.map((each) => each.run.start));
  const end = Math.max(...told.map((each) => each.run.end ?? each.run.start));
  const row = (used: Usage, cost: string, took: number | null) => [count(used.requests), exact(sentTokens(used)), percent(used.cache_read_tokens, sentTokens(used)), exact(used.output_tokens), cost, duration(took)];
  const rows = told.map(({ run, used, mode }) => ({
    key: run.key,
    name: (
      <>
        <StateIcon state={run.state} /> <b>{run.title}</b> <span class="quiet">{mode}</span>
      </>
    ),
    figures: row(used, used.requests ? money(used.cost) : DASH, run.end === null ? null : run.end - run.start),
  }));
  return <UsageTable by="child" columns={["requests", "in", "cached", "out", "cost", "time"]} rows={rows} all={row(all, money(all.cost), end - start)} />;
}

function ByTool({ tree, told }: { tree: Tree; told: Party[] }) {
  const runs = new Set(told.map((each) => each.run.path.join("/")));
  const tools = new Map<string, { calls: number; errors: number; seconds: number }>();
  for (const call of [...tree.steps.values()].filter(isCounted)) {
    if (!runs.has(call.run.path.join("/"))) continue;
    const known = tools.get(call.title) ?? { calls: 0, errors: 0, seconds: 0 };
    known.calls += 1;
    known.errors += call.finished?.["is_error"] === true ? 1 : 0;
    known.seconds += number(call.finished?.["duration_s"]) ?? 0;
    tools.set(call.title, known);
  }
  const rows = [...tools].map(([key, each]) => ({
    key,
    name: <span class="mono">{key}</span>,
    figures: [count(each.calls), <span key="errors" class={each.errors ? "bad" : ""}>{count(each.errors)}</span>, duration(each.seconds)],
  }));
  return <UsageTable by="tool" columns={["calls", "errors", "time"]} rows={rows} />;
}

function ByModel({ told }: { told: Party[] }) {
  const models = new Map<string, Usage>();
  for (const { run } of told) {
    for (const attempt of run.attempts) {
      for (const iteration of attempt.children) {
        const answer = iteration.events.find((event) => event.type === "ModelResponded");
        if (!answer) continue;
        const name = text(answer["model"]);
        models.set(name, sum(models.get(name) ?? NOTHING, usage(answer["usage"])));
      }
    }
  }
  const rows = [...models].map(([key, used]) => ({ key, name: <span class="mono">{key}</span>, figures: [count(used.requests), exact(used.output_tokens), money(used.cost)] }));
  return <UsageTable by="model" columns={["requests", "out", "cost"]} rows={rows} />;
}
