// What happened, as a tree: turns, attempts, iterations, calls, and runs under the call that began them. It takes events
// as they come, and never needs one that has not come yet.

import type { Facts, Happened, Run, Usage } from "../api.ts";
import { plural } from "./format.ts";
import { firstOf, inOneLine, list, NOTHING, number, object, sum, text, usage, wordsOf } from "./values.ts";

export type Kind = "root" | "turn" | "run" | "attempt" | "iteration" | "call" | "note" | "ending";
export type State = "done" | "failed" | "live" | "waits" | "cancelled";

/** Whether a run has neither ended nor been left. */
export function goesOn(run: { status: string }): boolean {
  return ["ready", "running", "waiting", "held", "blocked"].includes(run.status);
}

/** Whether a step is the call of a tool, which counts and limits of calls are about: handing in is none. */
export function isCounted(step: Step): boolean {
  return step.kind === "call" && !["output", "submit"].includes(text(step.called?.["kind"]));
}

export function stateOf(status: string, isWaiting = false): State {
  if (isWaiting) return "waits";
  if (status === "failed" || status === "died" || status === "blocked") return "failed";
  if (goesOn({ status })) return "live";
  return status === "cancelled" ? "cancelled" : "done";
}

export interface Chip {
  text: string;
  look: "plain" | "bad" | "wait" | "accent";
}

export interface Verdict {
  layers: { name: string; description: string; passed: boolean | null; started: number; ended: number | null; feedback: string }[];
  feedback: string;
  attempt: number;
  iteration: number;
  /** The call that was handed in. */
  call: Step | null;
}

export interface Draft {
  number: number;
  call: Step;
  verdict: Verdict | null;
}

export interface Waiting {
  kind: "approval" | "question";
  event: Happened;
}

export interface Step {
  key: string;
  kind: Kind;
  parent: Step | null;
  children: Step[];
  /** The run that it is a part of, or that it is. */
  run: RunStep;
  attempt: number;
  iteration: number;
  /** What the model said, the name of a tool or of a run. */
  title: string;
  isMono: boolean;
  detail: string;
  /** Whether the detail is data, and not words. */
  isData: boolean;
  chip: Chip | null;
  state: State;
  start: number;
  end: number | null;
  /** When the answer was complete. */
  answered: number | null;
  used: Usage;
  /** The numbers of the events that are about this step alone. */
  events: Happened[];
  toolUseId: string | null;
  called: Happened | null;
  finished: Happened | null;
  said: Happened | null;
  draft: Draft | null;
  verdict: Verdict | null;
  waiting: Waiting | null;
  error: Facts | null;
  /** Whether something below failed. */
  hasFailure: boolean;
  isLive: boolean;
  /** What was said last, while it is being said. */
  words: string;
}

export interface RunStep extends Step {
  path: string[];
  agent: string;
  model: string;
  mode: string;
  maxAttempts: number;
  maxIterations: number;
  /** Of its own budget: tokens, cost, seconds, calls, as far as they are limited. */
  limits: Facts;
  ended: Happened | null;
  attempts: Step[];
  drafts: Draft[];
  calls: Map<string, Step>;
  /** How many calls of tools it has made; neither output nor submit is one. */
  counted: number;
  /** Those under way. */
  nowAttempt: Step | null;
  nowIteration: Step | null;
  verdictNow: Verdict | null;
  input: string;
}

/** A tree that grows. `version` counts what it took in. */
export class Tree {
  readonly root: RunStep;
  readonly runs: RunStep[] = [];
  readonly steps = new Map<string, Step>();
  readonly waiting = new Map<string, Step>();
  events = 0;
  last = 0;
  version = 0;
  /** All texts that were committed, by path: for who reads the conversation. */
  readonly messages = new Map<string, Map<number, Happened>>();
  readonly compactions: Happened[] = [];
  private readonly current = new Map<string, RunStep>();
  private readonly times = new Map<string, number>();
  private turn: Step | null = null;
  private turns = 0;

  readonly recording: Run;

  constructor(recording: Run) {
    this.recording = recording;
    this.root = this.runStep(null, "", [], recording.started);
    this.root.kind = "root";
    this.root.title = recording.agent;
  }

  add(events: Happened[]): void {
    for (const event of events) {
      if (event.n <= this.last) continue;
      this.last = event.n;
      this.events += 1;
      this.take(event);
    }
    this.version += 1;
  }

  /** The newest of what waits for a person. */
  get waits(): Step | null {
    let found: Step | null = null;
    for (const step of this.waiting.values()) found = step;
    return found;
  }

  // -- making steps

  private step(kind: Kind, parent: Step | null, run: RunStep | null, key: string, start: number): Step {
    const step = {
      key, kind, parent, children: [], attempt: 0, iteration: 0, title: "", isMono: false, detail: "", isData: false, chip: null,
      state: "live", start, end: null, answered: null, used: NOTHING, events: [], toolUseId: null, called: null,
      finished: null, said: null, draft: null, verdict: null, waiting: null, error: null, hasFailure: false, isLive: true,
      words: "",
    } as unknown as Step;
    step.run = run ?? (step as RunStep);
    if (parent) parent.children.push(step);
    this.steps.set(key, step);
    return step;
  }

  private runStep(parent: Step | null, key: string, path: string[], start: number): RunStep {
    const run = this.step("run", parent, null, key, start) as RunStep;
    Object.assign(run, {
      path, agent: path[path.length - 1] ?? "", model: "", mode: "", maxAttempts: 0, maxIterations: 0, limits: {}, ended: null,
      attempts: [], drafts: [], calls: new Map<string, Step>(), counted: 0, nowAttempt: null, nowIteration: null, verdictNow: null, input: "",
    });
    return run;
  }

  private runOf(event: Happened): RunStep {
    const path = event.path.join("/");
    return this.current.get(path) ?? this.begin(event, path);
  }

  private begin(event: Happened, path: string): RunStep {
    const time = (this.times.get(path) ?? 0) + 1;
    this.times.set(path, time);
    const above = this.current.get(event.path.slice(0, -1).join("/"));
    const parent = (event.tool_use_id && above?.calls.get(event.tool_use_id)) || (event.path.length > 1 ? above : null);
    const key = time > 1 ? `${path}:${time}` : path;
    const run = this.runStep(parent ?? this.place(event), key, event.path, event.at);
    run.title = event.path.at(-1) ?? this.recording.agent;
    run.agent = text(event["agent"]) || run.agent;
    run.model = text(event["model"]);
    run.mode = text(event["mode"]);
    run.maxAttempts = number(event["max_attempts"]) ?? 0;
    run.maxIterations = number(event["max_iterations"]) ?? 0;
    run.toolUseId = event.tool_use_id ?? null;
    this.current.set(path, run);
    this.runs.push(run);
    if (parent?.kind === "call") this.describeCall(parent);
    return run;
  }

  /** Where a run without a call hangs: in a chat under its turn, else at the root. */
  private place(event: Happened): Step {
    if (this.recording.kind !== "chat") return this.root;
    if (!this.turn) {
      this.turns += 1;
      this.turn = this.step("turn", this.root, this.root, `turn-${this.turns}`, event.at);
      this.turn.title = `Turn ${this.turns}`;
    }
    return this.turn;
  }

  private attemptOf(event: Happened): Step {
    const run = this.runOf(event);
    const n = event.attempt || run.nowAttempt?.attempt || 1;
    if (run.nowAttempt?.attempt === n) return run.nowAttempt;
    const attempt = this.step("attempt", run, run, `${run.key}/${n}`, event.at);
    attempt.attempt = n;
    attempt.title = `Attempt ${n}`;
    run.nowAttempt = attempt;
    run.attempts.push(attempt);
    run.verdictNow = null;
    return attempt;
  }

  private iterationOf(event: Happened): Step {
    const run = this.runOf(event);
    const attempt = this.attemptOf(event);
    const n = event.iteration || run.nowIteration?.iteration || 1;
    if (run.nowIteration?.iteration === n && run.nowIteration.attempt === attempt.attempt) return run.nowIteration;
    this.endIteration(run, event.at);
    const iteration = this.step("iteration", attempt, run, `${run.key}/${attempt.attempt}.${n}`, event.at);
    iteration.attempt = attempt.attempt;
    iteration.iteration = n;
    run.nowIteration = iteration;
    return iteration;
  }

  private endIteration(run: RunStep, at: number): void {
    const iteration = run.nowIteration;
    if (!iteration || iteration.end !== null) return;
    let end = iteration.answered ?? at;
    for (const call of iteration.children) end = Math.max(end, call.end ?? at);
    this.close(iteration, iteration.answered === null ? at : end);
  }

  private note(event: Happened, title: string, detail = "", state: State = "done", run = this.runOf(event)): Step {
    const parent = run.nowIteration ?? run.nowAttempt ?? run;
    const note = this.step("note", parent, run, `${run.key && `${run.key}/`}n${event.n}`, event.at);
    note.attempt = parent.attempt;
    note.iteration = parent.iteration;
    Object.assign(note, { title, detail, state, end: event.at, isLive: false, called: event });
    note.events.push(event);
    if (state === "failed") this.fail(note);
    return note;
  }

  private close(step: Step, at: number): void {
    step.end = at;
    step.isLive = false;
    if (step.state === "live") step.state = "done";
  }

  private fail(step: Step): void {
    step.state = "failed";
    for (let above: Step | null = step.parent; above; above = above.parent) above.hasFailure = true;
  }

  // -- taking events in

  private take(event: Happened): void {
    const taker = this.takers.get(event.type);
    if (taker) taker(event);
    else (this.current.get(event.path.join("/")) ?? this.root).events.push(event);
  }

  /** What each kind of event does. Of any other it is only kept that it happened. */
  private readonly takers = new Map(Object.entries<(event: Happened) => void>({
    RunStarted: (event) => this.begin(event, event.path.join("/")).events.push(event),
    Input: (event) => this.takeInput(event),
    AttemptStarted: (event) => this.attemptOf(event).events.push(event),
    AttemptCompleted: (event) => this.completeAttempt(event),
    IterationStarted: (event) => this.iterationOf(event).events.push(event),
    MessageCommitted: (event) => this.commit(event),
    ModelResponded: (event) => this.respond(event),
    ModelRetried: (event) => {
      this.iterationOf(event).events.push(event);
      this.note(event, "Request failed", `${text(event["kind"])}: ${text(event["message"])}`);
    },
    ContextCompacted: (event) => this.compact(event),
    ToolCalled: (event) => this.call(event),
    ToolFinished: (event) => this.finish(event),
    ToolProgress: (event) => {
      const call = this.keepWithCall(event);
      if (call?.state === "live") call.words = text(event["message"]);
    },
    CallAbandoned: (event) => {
      const call = this.keepWithCall(event);
      if (call) call.chip = { text: "abandoned", look: "bad" };
    },
    SandboxRefused: (event) => {
      const call = this.keepWithCall(event);
      if (call) call.chip = { text: "refused", look: "bad" };
    },
    GateDecided: (event) => this.keepWithCall(event),
    StepRecalled: (event) => this.keepWithCall(event),
    ApprovalRequested: (event) => this.wait(event),
    ApprovalAnswered: (event) => this.answer(event),
    QuestionAsked: (event) => this.wait(event),
    QuestionAnswered: (event) => this.answer(event),
    LayerStarted: (event) => this.judge(event),
    LayerCompleted: (event) => this.judge(event),
    ValidationFailed: (event) => this.judge(event),
    RunSucceeded: (event) => this.end(event),
    RunFailed: (event) => this.end(event),
    TurnEnded: (event) => this.endTurn(event),
    TaskEnded: (event) => this.endTask(event),
    MailSent: (event) => this.note(event, "Mail", mailText(event)),
    MailReturned: (event) => this.note(event, "Mail came back", mailText(event), "failed"),
    RunClaimed: (event) => {
      const from = text(event["taken_from"]);
      this.noteAtRoot(event, "Claimed", `by ${text(event["worker"])}${from ? `, taken from ${from}` : ""}`);
    },
    RunSuspended: (event) => this.noteAtRoot(event, "Suspended", "it waits, and takes no memory"),
    RunNeedsAttention: (event) => this.noteAtRoot(event, "Halted", text(event["reason"])),
    RunResumed: (event) => this.noteAtRoot(event, "Resumed", `in attempt ${event.attempt ?? 0}, iteration ${event.iteration ?? 0}`),
    RecordingEnded: (event) => this.note(event, "Recording ended", text(event["reason"]), "failed"),
  }));

  private takeInput(event: Happened): void {
    const run = this.runOf(event);
    run.input = text(event["input"]);
    run.limits = object(event["limits"]);
    run.events.push(event);
    if (this.turn && run.parent === this.turn && !this.turn.detail) this.turn.detail = firstOf(run.input);
  }

  private completeAttempt(event: Happened): void {
    const attempt = this.attemptOf(event);
    attempt.events.push(event);
    this.endIteration(attempt.run, event.at);
    this.close(attempt, event.at);
    if (event["succeeded"] !== true) this.fail(attempt);
    else {
      attempt.state = "done";
      if (attempt.verdict) attempt.chip = { text: "accepted", look: "plain" };
    }
  }

  private compact(event: Happened): void {
    const [before, after] = [number(event["before_tokens"]) ?? 0, number(event["after_tokens"]) ?? 0];
    this.compactions.push(event);
    const told = before === after ? "nothing came of it" : `${plural(before, "token")} to ${plural(after, "token")}`;
    this.note(event, "Compacted", told).used = usage(event["usage"]);
  }

  /** Keep an event with the call that it is about, if there is one, and return that. */
  private keepWithCall(event: Happened): Step | null {
    const run = this.runOf(event);
    const call = (event.tool_use_id && run.calls.get(event.tool_use_id)) || null;
    (call ?? run.nowIteration ?? run).events.push(event);
    return call;
  }

  private endTurn(event: Happened): void {
    const turn = this.turn;
    if (!turn) return;
    turn.events.push(event);
    // Older recordings have the whole result, and no code of it.
    if (turn.state === "live" && event["code"] === undefined && event["result"] === undefined) turn.state = "cancelled";
    this.close(turn, event.at);
    this.turn = null;
  }

  private endTask(event: Happened): void {
    const info = object(event["info"]);
    if (info["kind"] === "agent" || info["kind"] === "member") this.runOf(event).events.push(event);
    else this.note(event, text(info["id"]), `${text(info["status"])}: ${text(info["description"])}`, info["status"] === "failed" ? "failed" : "done");
  }

  /** Note something that may be told before its run has begun, or between its lives. */
  private noteAtRoot(event: Happened, title: string, detail: string): void {
    this.note(event, title, detail, "done", this.current.get(event.path.join("/")) ?? this.root);
  }

  private commit(event: Happened): void {
    const run = this.runOf(event);
    const path = event.path.join("/");
    const known = this.messages.get(path) ?? new Map<number, Happened>();
    this.messages.set(path, known);
    known.set(number(event["index"]) ?? 0, event);
    const role = object(event["message"])["role"];
    const iteration = run.nowIteration;
    if (role === "assistant" && iteration && iteration.answered === null) {
      iteration.said = event;
      iteration.events.push(event);
      iteration.title = firstOf(wordsOf(event).join("\n"));
    } else (iteration ?? run.nowAttempt ?? run).events.push(event);
  }

  private respond(event: Happened): void {
    const iteration = this.iterationOf(event);
    iteration.events.push(event);
    iteration.answered = event.at;
    iteration.used = usage(event["usage"]);
    iteration.words = "";
    if (!iteration.title) iteration.title = firstOf(text(event["text"]));
    iteration.run.used = sum(iteration.run.used, iteration.used);
    const attempt = iteration.parent;
    if (attempt?.kind === "attempt") attempt.used = sum(attempt.used, iteration.used);
    for (let above = iteration.run.parent; above; above = above.parent) {
      if (above.kind === "turn" || above.kind === "root") above.used = sum(above.used, iteration.used);
    }
    const calls = list(object(iteration.said?.["message"])["content"]).filter((block) => object(block)["type"] === "tool_use").length;
    if (calls === 0 && event["stop_reason"] !== "tool_use") this.endIteration(iteration.run, event.at);
  }

  private call(event: Happened): void {
    const iteration = this.iterationOf(event);
    const run = iteration.run;
    const id = event.tool_use_id ?? `n${event.n}`;
    const known = run.calls.get(id);
    if (known?.parent === iteration && known.end === null) {
      known.events.push(event); // told again: what is known of a run that is not recorded is told each time it changes
      return;
    }
    const call = this.step("call", iteration, run, `${iteration.key}/${id}`, event.at);
    call.attempt = iteration.attempt;
    call.iteration = iteration.iteration;
    call.title = event.tool_name ?? "";
    call.isMono = true;
    call.toolUseId = id;
    call.called = event;
    call.events.push(event);
    run.calls.set(id, call);
    if (isCounted(call)) run.counted += 1;
    iteration.end = null;
    if (event["kind"] === "output") {
      call.draft = { number: run.drafts.length + 1, call, verdict: null };
      run.drafts.push(call.draft);
    } else if (event["kind"] === "submit") call.draft = run.drafts[run.drafts.length - 1] ?? null;
    this.describeCall(call);
  }

  private describeCall(call: Step): void {
    const given = object(call.called?.["tool_input"]);
    const inside = call.children.filter((each) => each.kind === "run") as RunStep[];
    const many = Array.isArray(given["tasks"]) ? given["tasks"].length : 0;
    const chain = Array.isArray(given["chain"]) ? given["chain"].length : 0;
    if (many) call.chip = { text: `parallel ×${many}`, look: "plain" };
    else if (chain) call.chip = { text: "chain", look: "plain" };
    else if (inside[0]?.mode) call.chip = { text: inside[0].mode, look: "plain" };
    call.isData = false;
    if (chain) call.detail = plural(chain, "step");
    else if (many) call.detail = "";
    else if (inside.length || given["task"] !== undefined) call.detail = firstOf(text(given["task"]));
    else if (call.called?.["kind"] === "output") {
      call.chip = { text: `draft ${call.draft?.number ?? 1}`, look: "plain" };
      call.detail = inOneLine(given);
    } else Object.assign(call, { detail: inOneLine(given), isData: true });
  }

  private finish(event: Happened): void {
    const run = this.runOf(event);
    const call = run.calls.get(event.tool_use_id ?? "");
    if (!call) {
      (run.nowIteration ?? run).events.push(event);
      return;
    }
    call.finished = event;
    call.events.push(event);
    this.close(call, event.at);
    call.words = "";
    if (call.waiting) this.waiting.delete(call.key);
    call.waiting = null;
    const isError = event["is_error"] === true;
    call.state = "done";
    const kind = event["kind"];
    if ((kind === "submit" || kind === "output") && run.verdictNow) {
      const verdict = run.verdictNow;
      verdict.call = call;
      verdict.iteration = call.iteration;
      call.verdict = verdict;
      if (call.draft) call.draft.verdict = verdict;
      run.verdictNow = null;
      const failed = verdict.layers.find((layer) => layer.passed === false);
      if (failed) {
        call.chip = { text: "rejected", look: "bad" };
        Object.assign(call, { detail: failed.name, isData: true });
      } else if (kind === "submit") Object.assign(call, { chip: { text: "accepted", look: "plain" }, detail: "" });
      else Object.assign(call, { chip: run.drafts.length > 1 ? call.chip : null, detail: "handed in, accepted", isData: false });
    }
    if (isError) this.fail(call);
    if (event["cached"] === true) call.chip ??= { text: "cached", look: "plain" };
    const runs = call.children.filter((each) => each.kind === "run");
    const nth = runs.findIndex((each) => each.state === "failed");
    if (runs.length && nth >= 0 && call.chip?.text === "chain") {
      call.detail = `${call.detail}, failed at ${nth + 1}`;
      this.fail(call);
    }
    const iteration = call.parent;
    if (iteration?.kind === "iteration" && iteration.children.every((each) => each.kind !== "call" || each.end !== null)) this.close(iteration, event.at);
  }

  private wait(event: Happened): void {
    const run = this.runOf(event);
    const call = (event.tool_use_id && run.calls.get(event.tool_use_id)) || this.openCall(run) || run.nowIteration || run;
    call.events.push(event);
    call.waiting = { kind: event.type === "ApprovalRequested" ? "approval" : "question", event };
    this.waiting.set(call.key, call);
    for (let step: Step | null = call; step && step.kind !== "run" && step.kind !== "root"; step = step.parent) step.state = "waits";
  }

  private openCall(run: RunStep): Step | null {
    let found: Step | null = null;
    for (const call of run.calls.values()) if (call.end === null) found = call;
    return found;
  }

  private answer(event: Happened): void {
    const id = text(event["id"]);
    for (const step of this.waiting.values()) {
      if (text(step.waiting?.event["id"]) !== id) continue;
      step.events.push(event);
      step.waiting = null;
      this.waiting.delete(step.key);
      for (let above: Step | null = step; above; above = above.parent) if (above.state === "waits") above.state = "live";
      return;
    }
    this.runOf(event).events.push(event);
  }

  private judge(event: Happened): void {
    const attempt = this.attemptOf(event);
    const run = attempt.run;
    attempt.events.push(event);
    run.verdictNow ??= { layers: [], feedback: "", attempt: attempt.attempt, iteration: run.nowIteration?.iteration ?? 0, call: null };
    const verdict = run.verdictNow;
    attempt.verdict = verdict;
    const facts = event.type === "LayerCompleted" ? object(event["outcome"]) : event;
    if (event.type === "ValidationFailed") {
      verdict.feedback = text(facts["feedback"]);
      attempt.chip = { text: "rejected", look: "bad" };
      return;
    }
    const name = text(facts["name"]);
    if (event.type === "LayerStarted") {
      const layer = { name, description: text(facts["description"]), passed: null, started: event.at, ended: null, feedback: "" };
      verdict.layers.push(layer);
      return;
    }
    const layer = verdict.layers.find((each) => each.name === name && each.ended === null);
    if (!layer) return;
    layer.ended = event.at;
    layer.passed = facts["passed"] === true;
    layer.feedback = text(facts["feedback"]);
    if (!layer.passed) Object.assign(attempt, { detail: name, isData: true });
  }

  private end(event: Happened): void {
    const run = this.runOf(event);
    run.ended = event;
    this.close(run, event.at);
    run.events.push(event);
    this.endIteration(run, event.at);
    for (const call of run.calls.values()) this.waiting.delete(call.key);
    const failed = event.type === "RunFailed";
    const error = failed ? object(event["error"]) : null;
    run.error = error;
    run.state = "done";
    const iteration = run.nowIteration;
    if (error && iteration && iteration.answered === null) {
      const isBudget = error["code"] === "BUDGET_EXCEEDED";
      iteration.title = isBudget ? "Not sent" : "No answer";
      iteration.detail = isBudget ? "the budget was used up" : firstOf(text(error["message"]));
      iteration.error = error;
      this.fail(iteration);
    }
    if (error) {
      if (error["category"] === "cancelled" || error["code"] === "EXECUTION_CANCELLED") run.state = "cancelled";
      else this.fail(run);
      if (run.parent && run.parent.kind !== "turn") run.chip = { text: text(error["code"]), look: "bad" };
      if (run.parent?.kind === "turn") {
        run.parent.chip = { text: text(error["code"]), look: "bad" };
        run.parent.state = run.state;
      }
    }
    const n = run.attempts.reduce((all, attempt) => all + attempt.children.filter((each) => each.kind === "iteration" && each.answered !== null).length, 0);
    run.detail = n === 0 ? "sent nothing" : plural(n, "iteration");
    const above = run.parent;
    if (above?.kind === "call" && error) above.hasFailure = true;
    if (above === this.root || (above?.kind === "turn" && error)) {
      const ending = this.step("ending", above, run, `${run.key}/ending`, event.at);
      Object.assign(ending, {
        title: "Ending", end: event.at, isLive: false, error, called: event, state: run.state,
        detail: error ? endingInShort(error) : "SUCCESS",
      });
      ending.events.push(event);
      if (failed && run.state !== "cancelled") this.fail(ending);
    }
    if (above === this.root && this.root.state === "live") this.root.state = run.state;
  }
}

function mailText(event: Happened): string {
  const mail = object(event["mail"] ?? object(event["letter"])["mail"]);
  return `${text(mail["sender"])} to ${text(mail["to"])}: ${firstOf(text(mail["summary"]) || text(mail["text"]))}`;
}

/** The figures that ended a run, or else its code. */
export function endingInShort(error: Facts): string {
  const context = object(error["context"]);
  const [used, limit] = [number(context["used"]), number(context["limit"])];
  const policy = text(context["policy"]);
  if (used !== null && limit !== null) return `${used.toLocaleString("en-US")} of ${limit.toLocaleString("en-US")}${policy ? ` ${policy}` : ""}`;
  return text(error["code"]);
}
