// How a run ended, what it used, by whom, and how near its limits it was.

import type { Facts, Usage } from "../api";
import { parsed } from "../client";
import { count, DASH, duration, exact, money, percent } from "../logic/format";
import type { RunStep, Step, Tree } from "../logic/tree";
import { allTokens, isObject, NOTHING, number, object, sentTokens, sum, text, usage } from "../logic/values";
import { type PaneGiven, ResultView, useEntire } from "./details";
import { allLayers, VerdictView } from "./draft";
import { WhoDidWhat } from "./operator";
import { JsonView, StateIcon } from "./parts";

interface Party {
  run: RunStep;
  used: Usage;
  mode: string;
}

/** Which runs a step holds, itself first. */
function parties(tree: Tree, step: Step): Party[] {
  const top = step.kind === "turn" || step.kind === "root" ? step : step.run;
  const isInside = (run: RunStep) => {
    for (let at: Step | null = run; at; at = at.parent) if (at === top) return true;
    return false;
  };
  const merged = new Map<string, Party>();
  for (const run of tree.runs.filter(isInside)) {
    const known = merged.get(run.path.join("/"));
    if (known) merged.set(run.path.join("/"), { ...known, run, used: sum(known.used, run.used) });
    else merged.set(run.path.join("/"), { run, used: run.used, mode: run === top || run.path.length === 1 ? "itself" : run.mode });
  }
  return [...merged.values()];
}

interface GaugeGiven {
  name: string;
  parts: { look: string; amount: number }[];
  limit: number | null;
  told: string;
  ended: boolean;
}

function Gauge({ name, parts, limit, told, ended }: GaugeGiven) {
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
  const told = parties(tree, step);
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
      <Gauges run={run} told={told} error={error} metadata={metadata} seconds={(run.end ?? recording.run?.seen ?? run.start) - run.start} />
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

function Gauges({ run, told, error, metadata, seconds }: { run: RunStep; told: Party[]; error: Facts | null; metadata: Facts; seconds: number }) {
  const context = object(error?.["context"]);
  const policy = error?.["code"] === "BUDGET_EXCEEDED" ? text(context["policy"]) : error?.["code"] === "MAX_ITERATIONS" ? "iterations" : error?.["code"] === "MAX_ATTEMPTS_EXCEEDED" ? "attempts" : "";
  const limit = number(context["limit"]);
  const used = number(context["used"]);
  const own = told.filter((each) => each.mode === "itself");
  const back = told.filter((each) => each.mode === "background");
  const children = told.filter((each) => each.mode !== "itself" && each.mode !== "background");
  const parts = (amount: (used: Usage) => number) => [
    { look: "own", amount: own.reduce((n, each) => n + amount(each.used), 0) },
    { look: "children", amount: children.reduce((n, each) => n + amount(each.used), 0) },
    { look: "background", amount: back.reduce((n, each) => n + amount(each.used), 0) },
  ];
  const tokens = parts(allTokens);
  const inAll = tokens.reduce((n, part) => n + part.amount, 0);
  const costs = told.map((each) => each.used.cost);
  const cost = costs.some((each) => each === null) ? null : costs.reduce<number>((n, each) => n + (each ?? 0), 0);
  const attempts = run.attempts.length;
  const last = run.attempts[run.attempts.length - 1];
  const iterations = last ? last.children.filter((each) => each.kind === "iteration" && each.answered !== null).length : 0;
  const needed = number(context["needed"]);
  const reserved = policy === "tokens" && limit !== null ? Math.max(0, Math.min(needed ?? 0, limit - (used ?? inAll))) : 0;
  const tokensTold = policy === "tokens" && limit !== null ? (
    <><b class="bad">{exact(used ?? inAll)}</b> <span>of {exact(limit)}{needed !== null ? ` · ${exact(needed)} needed` : ` · ${exact(Math.max(0, limit - (used ?? inAll)))} left`}</span></>
  ) : exact(inAll);
  return (
    <section class="gauges" aria-label="Budgets">
      <h3>
        Budgets <span>of this run{told.length > 1 ? " and all below" : ""}</span>
        <span class="legend">
          <i class="own" /> itself {children.length > 0 && <><i class="children" /> children</>} {back.length > 0 && <><i class="background" /> background</>} {reserved > 0 && <><i class="reserved" /> reserved</>}
        </span>
      </h3>
      <Gauge name="tokens" parts={[...tokens, { look: "reserved", amount: reserved }]} limit={policy === "tokens" ? limit : null} told={tokensTold as unknown as string} ended={policy === "tokens"} />
      <Gauge name="cost" parts={cost === null ? [] : parts((each) => each.cost ?? 0)} limit={policy === "cost" ? limit : null} told={policy === "cost" && limit !== null ? `${money(used ?? cost)} of ${money(limit)}` : money(cost)} ended={policy === "cost"} />
      <Gauge name="seconds" parts={[{ look: "own", amount: seconds }]} limit={policy === "seconds" ? limit : null} told={policy === "seconds" && limit !== null ? `${seconds.toFixed(1)} of ${exact(limit)}` : duration(seconds)} ended={policy === "seconds"} />
      <Gauge name="attempts" parts={[{ look: "own", amount: attempts }]} limit={run.maxAttempts || null} told={`${attempts} of ${run.maxAttempts || "?"}`} ended={policy === "attempts"} />
      <Gauge name="iterations" parts={[{ look: "own", amount: iterations }]} limit={run.maxIterations || null} told={`${iterations} of ${run.maxIterations || "?"} in ${attempts > 1 ? "the last" : "this"} attempt`} ended={policy === "iterations"} />
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
