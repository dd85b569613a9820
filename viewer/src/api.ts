// What the server sends and takes. Made from the classes of journeyman.record and journeyman.view, where each field is
// explained, by `make viewer` or `make fix`: change it there. Times are seconds since 1970, sizes are bytes.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Facts = { [name: string]: Json };

/** The tokens and the cost of a run; what no response reported is 0, except for the cost. */
export interface Usage {
  requests: number;
  input_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  output_tokens: number;
  reasoning_tokens: number;
  cost: number | null;
}

/** One recording: a run with all runs in it, or all turns of a chat. */
export interface Run {
  id: string; // 36 characters, which sort by the time of the beginning.
  kind: "run" | "chat" | "team" | "durable"; // What was recorded: a run, a chat, a team, or a durable run.
  agent: string; // The agent's name; of a chat, that of its last turn.
  model: string; // `provider:name`, of the outermost run.
  input: string; // The beginning of the first prompt, in one line; empty if no content is kept.
  has_content: boolean; // False: only shapes, sizes and digests were kept.
  started: number; // Seconds since 1970.
  seen: number; // When something was last written to it, in seconds since 1970.
  ended: number | null; // Seconds since 1970; None while it goes on.
  status: "ready" | "running" | "waiting" | "held" | "blocked" | "done" | "failed" | "cancelled" | "left" | "died"; // Whether it goes on, and how it ended.
  code: string | null; // The code of the failure; for a chat, that of its last turn.
  attempts: number; // How many attempts the outermost run made; for a chat, all its turns together.
  iterations: number; // How many model calls were made, including those of the runs inside.
  calls: number | null; // The number of tool calls, with those of the runs inside; None: nobody has recorded them.
  children: number; // How many runs are inside.
  usage: Usage; // What all these runs used; its `cost` is None if the cost of any response is unknown.
  bytes: number; // About how many bytes it takes on the disk.
  dropped: number; // How many reports of progress were not written because the disk was too slow.
  why: string | null; // Why the recording ended before the run did; None if it did not.
  is_recorded?: boolean; // False: it is a durable run that is not recorded, of which only the figures of its row are known.
  waits?: "approval" | "an answer"; // What a live run waits for from a person.
}

/** Something that happened in a run: an event of `journeyman.events`, in its JSON form. */
export interface Happened {
  n: number; // Its number in the store.
  at: number; // Seconds since 1970.
  type: string; // The name of the event's class.
  path: string[];
  attempt?: number; // The attempt in which it happened, from 1.
  iteration?: number; // The iteration within the attempt, from 1.
  tool_use_id?: string; // The call that it is about.
  tool_name?: string; // The tool that it is about.
  [fact: string]: Json; // The other fields of the event.
}

/** One request to a model, and what came back. */
export interface Sent {
  run: string; // The id of the recording.
  n: number; // Its number in the recording.
  at: number; // Seconds since 1970.
  path: string[];
  attempt: number;
  iteration: number;
  form: "http" | "neutral"; // `http`: the bytes as they were sent.
  model: string; // The model that was asked.
  size: number; // The size of the body in bytes.
  around: Facts; // The `url`, and those `headers` that may be kept.
  answer: Facts | null; // What came back: `status`, `request_id`, `id`, `model`, `stop_reason`, `stop_detail`, `usage` (the provider's own words), `first_ms`, `total_ms`, `longest_gap_ms`, `n_chunks`; for a request that failed, `error` and `error_body`.
}

/** The last words of an answer that is being written, and the iteration in which they are said. */
export interface Words {
  path: string[];
  attempt: number;
  iteration: number;
  text: string;
}

/** A part of a request, which other requests may share. */
export interface Piece {
  number: number;
  size: number;
  body: string | null; // None: its content was not kept.
}

/** The part of a request that is sent with one of them alone. */
export interface SentWhole extends Sent {
  pieces: Piece[]; // The same may stand in it more than once.
}

/** The store that is looked at. */
export interface Store {
  place: string;
  version: string; // That of this library.
  bytes: number;
  runs: number;
  read_only: boolean;
  notice: string | null; // What is wrong with it, though it can be looked at.
}

/** A page of runs, the newest first. It may be short, or empty, while there is more. */
export interface Runs {
  runs: Run[];
  more: boolean;
  next: string | null; // The run behind which the next page begins.
  newest: number; // The number of the newest recording when this was read.
}

/** The counts of one day. */
export interface Day {
  day: number; // Midnight UTC.
  runs: number;
  failed: number;
  cost: number;
}

/** The counts of each of the last days, the oldest first. */
export interface Days {
  days: Day[];
}

/** A page of what happened in a run. */
export interface Events {
  events: Happened[];
  more: boolean;
}

/** All requests of a run. */
export interface Requests {
  requests: Sent[];
}

/** A word that was said to a run, and its outcome. */
export interface Told {
  n: number; // Its number in the store.
  at: number; // Seconds since 1970.
  kind: string;
  text: string;
  by: string; // Who said it.
  state: "waits" | "taken" | "withdrawn" | "late";
  waits_for: string | null; // What it waits for, in words.
}

/** Everything that was said to a run, the oldest first. */
export interface Signals {
  signals: Told[];
  read_only: boolean; // Whether nothing can be said to it here.
}

/** A request that somebody sends to a run: an answer, an approval, a text, or a command such as `stop`. */
export interface Signal {
  kind: "approve" | "answer" | "steer" | "follow_up" | "hold" | "release" | "stop" | "withdraw";
  idempotency_key: string; // A second one with the same changes nothing.
  question_id?: string;
  decision?: "allow" | "deny" | null;
  arguments?: Facts | null;
  extent?: "once" | "run" | "session" | "always";
  text?: string;
}

/** The answer to such a request: whether it was taken, and what was done or decided. */
export interface SignalAnswer {
  status: "taken" | "known" | "over"; // `known`: somebody has decided already; `over`: the run has ended.
  told: string; // What was done or decided, by whom and when, as one sentence.
}

/** The answer to who wants runs forgotten: all of them were. */
export interface Forgotten {
  forgotten: number;
  notice: string | null; // Why their room could not be given back.
}

/** An error: what happened, and what to do. */
export interface Refusal {
  error: string;
  hint: string;
}
