// A recording as it is read and as it grows: its events in pages, its requests, and what comes while it is live.

import { useLayoutEffect, useMemo, useReducer } from "preact/hooks";
import type { Events, Happened, Refusal, Run, Sent, Signals, Told, Words } from "./api";
import { eventOf, eventsOf, Failed, failureOf, FIRST, get, ofRun, query, requestsOf, runOf } from "./client";
import { goesOn, Tree } from "./logic/tree";
import { isCut } from "./logic/values";

/** Names the iteration to which something belongs. */
function placeOf({ attempt, iteration }: { attempt?: number; iteration?: number }): string {
  return `${attempt}/${iteration}`;
}

export class Recording {
  run: Run | null = null;
  tree: Tree | null = null;
  requests: Sent[] = [];
  signals: Told[] = [];
  /** Whether anything may be said to it here. */
  isReadOnly = false;
  error: Failed | null = null;
  /** Since when nothing was heard; null while all is well. */
  lost: number | null = null;
  /** Why the store cannot be looked at any more. */
  gone: Failed | null = null;
  isWhole = false;
  version = 0;
  private readonly whole = new Map<number, Promise<Happened>>();
  private readonly listeners = new Set<() => void>();
  private source: EventSource | null = null;
  private isClosed = false;
  private frame = 0;
  private later = 0;
  private isAsking = false;
  /** The last words of the answers that are being written, by path. */
  private readonly saying = new Map<string, Words>();
  /** Where the newest answer is complete, by path. */
  private readonly spent = new Map<string, string>();
  private isWanted = false;
  private wantsRequests = false;

  constructor(readonly id: string) {}

  async open(): Promise<void> {
    try {
      const run = await runOf(this.id); // before its events: if a worker begins to record it in between, that is told below
      const events = eventsOf(this.id, 0);
      const rest = eventsOf(this.id, 0, FIRST); // asked for before it is known whether there is more: that is sooner done
      rest.catch(() => undefined);
      const requests = requestsOf(this.id).catch(() => [] as Sent[]); // asked for last: the rows come first
      const first = await events;
      if (!first.more) this.requests = await requests; // else the tabs of what is selected would change under a hand
      if (this.isClosed) return;
      this.run = run;
      this.tree = new Tree(run);
      for (let page: Events | null = first; page && !this.isClosed; ) {
        this.tree.add(page.events);
        this.tell();
        const isFirst: boolean = page === first && first.events.length === FIRST;
        page = page.more ? await (isFirst ? rest : eventsOf(this.id, this.tree.last)) : null;
      }
      this.isWhole = true;
      this.tell();
      this.requests = await requests;
      this.tell();
      if (goesOn(run)) this.follow();
      else void this.ask(false);
    } catch (error) {
      this.error = failureOf(error);
      this.tell();
    }
  }

  private follow(): void {
    if (this.isClosed) return;
    void this.ask();
    const source = new EventSource(`api/live${query({ run: this.id, after: this.tree?.last ?? 0 })}`);
    this.source = source;
    const heard = <T>(kind: string, take: (told: T) => void) =>
      source.addEventListener(kind, (event) => {
        this.lost = null;
        take(JSON.parse((event as MessageEvent<string>).data) as T);
        this.tell();
      });
    heard<Happened[]>("events", (events) => {
      this.tree?.add(events);
      for (const event of events) {
        if (event.type === "ModelResponded") this.spent.set(event.path.join("/"), placeOf(event));
        else if (event.type === "IterationStarted") this.spent.delete(event.path.join("/"));
      }
      this.write();
      if (events.some((event) => /^(ModelResponded|RunFailed|SignalTaken)$/.test(event.type))) this.askSoon();
    });
    heard<Run>("run", (run) => {
      const isAnother = this.run !== null && run.is_recorded !== this.run.is_recorded;
      this.run = run;
      if (isAnother) {
        // A worker has begun to record it: its events are others now, with other numbers.
        source.close();
        this.saying.clear();
        this.spent.clear();
        void this.open();
        return;
      }
      if (goesOn(run)) return;
      source.close();
      void this.ask();
    });
    heard<Words>("words", (words) => {
      this.saying.set(words.path.join("/"), words);
      this.write();
    });
    heard<Refusal>("gone", (told) => {
      this.gone = new Failed(told.error, told.hint, 500);
      source.close(); // asked again, it would only say so again
    });
    source.onerror = () => {
      this.lost ??= Date.now() / 1000;
      this.tell();
      if (source.readyState === EventSource.CLOSED && !this.isClosed) window.setTimeout(() => this.again(), 4_000);
    };
    source.onopen = () => {
      this.lost = null;
      this.tell();
    };
  }

  /** Put the words that are being said where they belong. They may come before the iteration in which they are said, and
   * after its answer. */
  private write(): void {
    for (const run of this.tree?.runs ?? []) {
      const path = run.path.join("/");
      const [now, said] = [run.nowIteration, this.saying.get(path)];
      if (!now?.isLive || !said || placeOf(said) !== placeOf(now)) continue;
      if (this.spent.get(path) !== placeOf(said)) now.words = said.text;
    }
  }

  again(): void {
    this.source?.close();
    this.gone = null;
    this.follow();
  }

  private askSoon(): void {
    if (this.later) return;
    this.later = window.setTimeout(() => {
      this.later = 0;
      void this.ask();
    }, 300);
  }

  /** Ask for what is not told by itself. Whoever asks meanwhile has it asked once more: an older answer never comes last. */
  async ask(withRequests = true): Promise<void> {
    this.isWanted = true;
    this.wantsRequests ||= withRequests;
    if (this.isAsking) return;
    this.isAsking = true;
    while (this.isWanted && !this.isClosed) {
      const isWithRequests = this.wantsRequests;
      this.isWanted = this.wantsRequests = false;
      // What is lost is told by the stream; what was known before stays.
      const told = await get<Signals>(ofRun(this.id, "/signals")).catch(() => null);
      if (told) {
        this.signals = told.signals;
        this.isReadOnly = told.read_only;
      }
      this.tell();
      if (isWithRequests) this.requests = await requestsOf(this.id).catch(() => this.requests);
      this.tell();
    }
    this.isAsking = false;
  }

  /** An event as it is in the store, with all of its texts. */
  entire(event: Happened): Promise<Happened> {
    if (!isCut(event)) return Promise.resolve(event);
    let known = this.whole.get(event.n);
    if (!known) {
      known = eventOf(this.id, event.n);
      this.whole.set(event.n, known);
      if (this.whole.size > 60) this.whole.delete(this.whole.keys().next().value as number);
    }
    return known;
  }

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private tell(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.version += 1;
      for (const listener of this.listeners) listener();
    });
  }

  close(): void {
    this.isClosed = true;
    this.source?.close();
    window.clearTimeout(this.later);
  }
}

/** A recording that is read as long as whoever asks for it is shown. */
export function useRecording(id: string): Recording {
  const [, render] = useReducer<number, void>((n) => n + 1, 0);
  const recording = useMemo(() => new Recording(id), [id]);
  useLayoutEffect(() => {
    const stop = recording.listen(() => render());
    void recording.open();
    return () => {
      stop();
      recording.close();
    };
  }, [recording]);
  return recording;
}
