// What the server sends. The shapes are those of journeyman.record; times are seconds since 1970, sizes are bytes.

export type Status = "live" | "success" | "failure" | "cancelled" | "left" | "died";
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Facts = { [name: string]: Json };

export interface Usage {
  requests: number;
  input_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  output_tokens: number;
  reasoning_tokens: number;
  cost: number | null;
}

export interface Run {
  id: string;
  kind: "run" | "chat" | "team" | "durable";
  agent: string;
  model: string;
  input: string;
  has_content: boolean;
  started: number;
  seen: number;
  ended: number | null;
  status: Status;
  code: string | null;
  attempts: number;
  iterations: number;
  calls: number;
  children: number;
  usage: Usage;
  bytes: number;
  dropped: number;
  why: string | null;
  /** What a live run waits for from a person: `approval` or `an answer`. Left out: nothing. */
  waits?: string | null;
}

/** Something that happened: an event of journeyman.events by the name of its class, or a note of the recorder. */
export interface Happened {
  n: number;
  at: number;
  path: string[];
  kind: string;
  attempt: number | null;
  iteration: number | null;
  tool_use_id: string | null;
  tool_name: string | null;
  facts: Facts;
}

export interface Sent {
  n: number;
  at: number;
  path: string[];
  attempt: number;
  iteration: number;
  form: "http" | "neutral";
  model: string;
  size: number;
  around: Facts;
  answer: Facts | null;
}

/** The last words of an answer that is being written, and the iteration in which they are said. */
export interface Words {
  path: string[];
  attempt: number;
  iteration: number;
  text: string;
}

export interface Piece {
  number: number;
  size: number;
  /** Text; null when its content was not kept. */
  body: string | null;
}

export interface Store {
  place: string;
  version: string;
  bytes: number;
  runs: number;
  read_only: boolean;
  notice: string | null;
}

export interface Runs {
  runs: Run[];
  more: boolean;
  next: string | null;
  /** The number of the newest recording when this was read. */
  newest: number;
}

export interface Day {
  /** Midnight UTC. */
  day: number;
  runs: number;
  failed: number;
  cost: number;
}

/** What a person may say to a run: POST /api/runs/{id}/signals. `idempotency_key` makes a second click harmless. */
export interface Signal {
  kind: "approve" | "answer" | "steer" | "follow_up" | "hold" | "release" | "stop" | "withdraw";
  idempotency_key: string;
  question_id?: string;
  /** Of `approve`. */
  decision?: "allow" | "deny";
  arguments?: Facts;
  extent?: "once" | "run" | "always";
  /** What is said, the answer, the reason, or the number of what is withdrawn. */
  text?: string;
}

export interface SignalAnswer {
  /** `known`: somebody has decided already; `over`: the run has ended. */
  status: "taken" | "known" | "over";
  /** What was decided, by whom and when, as one sentence. */
  told: string;
}

// GET  /api/store                                  Store
// GET  /api/runs?agent&status&failed&since&over_cost&q&tool&before&limit   Runs
//      a page may be short of `limit`, or empty, while there is more: go on with before={next}
// GET  /api/days?days=30                           { days: Day[] }
// GET  /api/runs/{id}                              Run
// GET  /api/runs/{id}/events?after=n&skip=0&limit=1000   { events: Happened[], more: boolean }
// GET  /api/runs/{id}/requests                     { requests: Sent[] }
// GET  /api/runs/{id}/requests/{n}                 Sent & { pieces: Piece[] }
// GET  /api/runs/{id}/requests/{n}/body            the bytes
// GET  /api/runs/{id}/export?as=jsonl|markdown|html|cassette
// POST /api/runs/{id}/signals                      SignalAnswer
// POST /api/forget { runs: string[] }              { forgotten: number, notice: string | null }: all of them, or none; 409 where one
//                                                  has not ended. `notice`: why their room could not be given back
// GET  /api/live?run={id}&after={n}                SSE: `events` Happened[], `run` Run, `words` Words (the last words of an
//                                                  answer that is being written), `gone` when the store went away
// GET  /api/live?newest={n}&shown={ids}             SSE: `runs` Run[] that are new or have changed since a list was read
// An error is { error: string, hint: string } with a status of 4xx or 5xx.

/** What was said to a run, and what came of it. */
export interface Told {
  n: number;
  at: number;
  kind: string;
  text: string;
  /** Who said it. */
  by: string;
  state: "waits" | "taken" | "withdrawn" | "late";
  /** What it waits for, in words. */
  waits_for: string | null;
}

// GET  /api/runs?…&before={id of the last run of the page before}
// GET  /api/runs/{id}/events?…&limit=n             at most 10,000; a server may give fewer, and says `more`
// GET  /api/runs/{id}/events?…&most={characters}   in facts, each longer text is { cut: its beginning, characters: about how many }
// GET  /api/runs/{id}/events/{n}                   Happened, whole
// GET  /api/runs/{id}/signals                      { signals: Told[], read_only: boolean }, the oldest first
