// Asking the server. An error is thrown as what happened and what to do, never as a number alone.

import type { Events, Forgotten, Happened, Json, Refusal, Requests, Run, Sent, SentWhole, Signal, SignalAnswer } from "./api";
import { answer, embedded } from "./offline";
import type { Route } from "./route";

export class Failed extends Error {
  constructor(
    message: string,
    readonly hint: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** An error as it is shown. */
export function failureOf(error: unknown): Failed {
  return error instanceof Failed ? error : new Failed(String(error), "", 0);
}

async function answered(response: Response): Promise<Response> {
  if (response.ok) return response;
  let told: Partial<Refusal> = {};
  try {
    told = (await response.json()) as Partial<Refusal>;
  } catch {
    // An answer of something in between: its status is all there is to say.
  }
  throw new Failed(told.error ?? `The server answered ${response.status} ${response.statusText}.`, told.hint ?? "", response.status);
}

async function found<T>(path: string): Promise<T> {
  const told = embedded ? answer(embedded, path) : undefined;
  if (told === undefined) throw new Failed("This file does not hold that.", "Open the run with journeyman view.", 404);
  return told as T;
}

async function asked(path: string, options?: RequestInit): Promise<Response> {
  try {
    return await answered(await fetch(path, options));
  } catch (error) {
    if (error instanceof Failed || (error instanceof DOMException && error.name === "AbortError")) throw error;
    throw new Failed("The viewer's process does not answer.", "Start it again: journeyman view.", 0);
  }
}

/** What was asked for before the first view was there to ask: each is taken once. */
const early = new Map<string, Promise<unknown>>();

/** Ask for what a place shows first. The server's answer to the page names the same addresses, so that the browser asks
 * while it still reads this script; this takes over what has come. */
export function askFirst(route: Route): Promise<unknown> {
  const { run, compare } = route;
  const isList = Object.keys(route).length === 0;
  const asked = embedded || compare ? [] : run ? [ofRun(run), eventPage(run, 0), eventPage(run, FIRST), ofRun(run, "/requests")] : isList ? [listPage({})] : [];
  for (const path of asked) {
    const told = get<unknown>(path);
    told.catch(() => undefined); // whoever takes it is told
    early.set(path, told);
  }
  return Promise.allSettled(asked.slice(0, 2).map((path) => early.get(path)));
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  if (embedded) return found<T>(path);
  const told = early.get(path);
  if (told) {
    early.delete(path);
    return told as Promise<T>;
  }
  return (await (await asked(path, signal ? { signal } : undefined)).json()) as T;
}

export function query(given: Record<string, string | number | boolean | null | undefined>): string {
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) told.set(name, value === true ? "1" : String(value));
  }
  const text = told.toString();
  return text ? `?${text}` : "";
}

export function ofRun(id: string, rest = ""): string {
  return `api/runs/${encodeURIComponent(id)}${rest}`;
}

/** Longer texts come when they are looked at. */
export const MOST = 4_000;

/** The first page is small, so that something is seen at once; the second is asked for beside it, by how many to skip. */
export const FIRST = 1_000;

function eventPage(id: string, skip: number, after = 0): string {
  const limit = after === 0 && skip === 0 ? FIRST : 10_000;
  return `${ofRun(id, "/events")}${query({ after, skip: skip || null, limit, most: MOST })}`;
}

/** What happened in a run: all but the first `skip` of what has a higher number than `after`. */
export function eventsOf(id: string, after: number, skip = 0): Promise<Events> {
  return get(eventPage(id, skip, after));
}

/** The address of a page of the list. */
export function listPage(wanted: Record<string, string | number | undefined>, before: string | null = null): string {
  return `api/runs${query({ ...wanted, before, limit: 100 })}`;
}

export function eventOf(id: string, n: number): Promise<Happened> {
  return get(ofRun(id, `/events/${n}`));
}

export async function requestsOf(id: string): Promise<Sent[]> {
  return (await get<Requests>(ofRun(id, "/requests"))).requests;
}

/** A request with its pieces. */
export function requestOf(id: string, n: number): Promise<SentWhole> {
  return get(ofRun(id, `/requests/${n}`));
}

export function runOf(id: string): Promise<Run> {
  return get(ofRun(id));
}

async function post<T>(path: string, told: unknown): Promise<T> {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(told) };
  return (await (await asked(path, options)).json()) as T;
}

export function say(id: string, signal: Signal): Promise<SignalAnswer> {
  return post(ofRun(id, "/signals"), signal);
}

/** Forget all of these runs; or none, where one of them cannot be forgotten. */
export function forget(runs: string[]): Promise<Forgotten> {
  return post("api/forget", { runs });
}

export function parsed(value: Json | undefined): Json | undefined {
  if (typeof value !== "string") return value;
  const start = value.trimStart()[0];
  if (start !== "{" && start !== "[") return undefined;
  try {
    return JSON.parse(value) as Json;
  } catch {
    return undefined;
  }
}
