// How a run ended, what it used, by whom, and how near its limits it was.

import { type ComponentChildren, Fragment } from "preact";
import type { Facts, Usage } from "../api";
import { parsed } from "../client";
import { count, DASH, duration, exact, money, percent } from "../logic/format";
import { type Gauge, gaugesOf, type Party, partiesOf } from "../logic/gauges";
import type { RunStep, Step, Tree } from "../logic/tree";
import { allTokens, isObject, NOTHING, number, object, sentTokens, sum, text, usage } from "../logic/values";
import type { Recording } from "../recording";
import { type PaneGiven, ResultView, useEntire } from "./details";
import { allLayers, VerdictView } from "./draft";
import { WhoDidWhat } from "./operator";
import { JsonView, StateIcon } from "./parts";

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
  const error = run.ended?.kind === "RunFailed" && (step.kind !== "attempt") ? object(ended?.facts["error"]) : null;
  const told = partiesOf(tree, step);
  const all = told.reduce((used, each) => sum(used, each.used), NOTHING);
  const metadata = object(ended?.facts["metadata"]);
  const output = ended?.facts["output"];
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
  const draft = step.verdict?.call?.draft?.call.called?.facts["tool_input"];
  const iterations = step.children.filter((each) => each.kind === "iteration").length;
  return (
    <>
      <p class="words">
        {step.title} took {duration(step.end === null ? null : step.end - step.start)}, {count(iterations)} iterations, {exact(allTokens(step.used))} tokens and {money(step.used.cost)}.
      </p>
      {step.verdict && (
        <VerdictView
          verdict={step.verdict}
          known={allLayers(tree.runs.flatMap((run) => run.attempts.map((attempt) => attempt.verdict)))}
          feedback={text(step.verdict.call?.finished?.facts["tool_result"]) || step.verdict.feedback}
          draft={object(draft)}
          light={() => undefined}
        />
      )}
    </>
  );
}

/** The page of the documentation that has a section for each code; opened only by who clicks. */
const ENDINGS = "https://journeyman-agents.github.io/journeyman/endings.html";

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
      <p>
        {text(error["hint"])}{" "}
        <a href={`${ENDINGS}#${text(error["code"]).toLowerCase()}`} target="_blank" rel="noreferrer">
          What {text(error["code"])} means
        </a>
      </p>
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
  const most = name === "seconds" ? exact(limit) : written(limit);
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

function ByChild({ told, all }: { told: Party[]; all: Usage }) {
  const start = Math.min(...told.map((each) => each.run.start));
  const end = Math.max(...told.map((each) => each.run.end ?? each.run.start));
  return (
    <section>
      <h3>By child</h3>
      <div class="scroller" tabIndex={0} role="group" aria-label="Usage by child">
        <table>
          <thead>
            <tr>
              <th scope="col">
                <span class="sr">run</span>
              </th>
              <th scope="col">requests</th>
              <th scope="col">in</th>
              <th scope="col">cached</th>
              <th scope="col">out</th>
              <th scope="col">cost</th>
              <th scope="col">time</th>
            </tr>
          </thead>
          <tbody>
            {told.map(({ run, used, mode }) => (
              <tr key={run.key}>
                <th scope="row">
                  <StateIcon state={run.state} /> <b>{run.title}</b> <span class="quiet">{mode}</span>
                </th>
                <td>{count(used.requests)}</td>
                <td>{exact(sentTokens(used))}</td>
                <td>{percent(used.cache_read_tokens, sentTokens(used))}</td>
                <td>{exact(used.output_tokens)}</td>
                <td>{used.requests ? money(used.cost) : DASH}</td>
                <td>{duration(run.end === null ? null : run.end - run.start)}</td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">All</th>
              <td>{count(all.requests)}</td>
              <td>{exact(sentTokens(all))}</td>
              <td>{percent(all.cache_read_tokens, sentTokens(all))}</td>
              <td>{exact(all.output_tokens)}</td>
              <td>{money(all.cost)}</td>
              <td>{duration(end - start)}</td>
            </tr>
          </tfoot>
        </table>
      </div>
    </section>
  );
}

function ByTool({ tree, told }: { tree: Tree; told: Party[] }) {
  const runs = new Set(told.map((each) => each.run.path.join("/")));
  const tools = new Map<string, { calls: number; errors: number; seconds: number }>();
  for (const run of tree.runs) {
    if (!runs.has(run.path.join("/"))) continue;
    for (const call of run.calls.values()) {
      const known = tools.get(call.title) ?? { calls: 0, errors: 0, seconds: 0 };
      known.calls += 1;
      known.errors += call.finished?.facts["is_error"] === true ? 1 : 0;
      known.seconds += number(call.finished?.facts["duration_s"]) ?? 0;
      tools.set(call.title, known);
    }
  }
  if (tools.size === 0) return null;
  return (
    <section>
      <h3>By tool</h3>
      <table>
        <thead>
          <tr>
            <th scope="col">
              <span class="sr">tool</span>
            </th>
            <th scope="col">calls</th>
            <th scope="col">errors</th>
            <th scope="col">time</th>
          </tr>
        </thead>
        <tbody>
          {[...tools].map(([name, each]) => (
            <tr key={name}>
              <th scope="row" class="mono">
                {name}
              </th>
              <td>{count(each.calls)}</td>
              <td class={each.errors ? "bad" : ""}>{count(each.errors)}</td>
              <td>{duration(each.seconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function ByModel({ told }: { told: Party[] }) {
  const models = new Map<string, Usage>();
  for (const { run } of told) {
    for (const attempt of run.attempts) {
      for (const iteration of attempt.children) {
        const answer = iteration.events.find((event) => event.kind === "ModelResponded");
        if (!answer) continue;
        const name = text(answer.facts["model"]);
        models.set(name, sum(models.get(name) ?? NOTHING, usage(answer.facts["usage"])));
      }
    }
  }
  if (models.size === 0) return null;
  return (
    <section>
      <h3>By model</h3>
      <table>
        <thead>
          <tr>
            <th scope="col">
              <span class="sr">model</span>
            </th>
            <th scope="col">requests</th>
            <th scope="col">out</th>
            <th scope="col">cost</th>
          </tr>
        </thead>
        <tbody>
          {[...models].map(([name, used]) => (
            <tr key={name}>
              <th scope="row" class="mono">
                {name}
              </th>
              <td>{count(used.requests)}</td>
              <td>{exact(used.output_tokens)}</td>
              <td>{money(used.cost)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
