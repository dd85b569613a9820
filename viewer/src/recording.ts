// A recording as it is read and as it grows: its events in pages, its requests, and what comes while it is live.

import type { Happened, Run, Sent, Told } from "./api";
import { eventOf, eventsOf, Failed, get, ofRun, query, requestsOf, runOf } from "./client";
import { Tree } from "./logic/tree";
import { isCut } from "./logic/values";

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
  isWhole = false;
  version = 0;
  private readonly whole = new Map<number, Promise<Happened>>();
  private readonly listeners = new Set<() => void>();
  private source: EventSource | null = null;
  private isClosed = false;
  private frame = 0;
  private later = 0;

  constructor(readonly id: string) {}

  async open(): Promise<void> {
    try {
      const both = Promise.all([runOf(this.id), eventsOf(this.id, 0)]);
      const requests = requestsOf(this.id); // asked for last: the rows come first
      requests.catch(() => undefined);
      const [run, first] = await both;
      if (this.isClosed) return;
      this.run = run;
      this.tree = new Tree(run);
      for (let page: typeof first | null = first; page && !this.isClosed; ) {
        const after: number = page.events[page.events.length - 1]?.n ?? this.tree.last;
        const next: ReturnType<typeof eventsOf> | null = page.more ? eventsOf(this.id, after) : null; // it is read while this one is shown
        next?.catch(() => undefined);
        this.tree.add(page.events);
        this.tell();
        page = await next;
      }
      this.isWhole = true;
      this.tell();
      this.requests = await requests;
      this.tell();
      if (run.status === "live") this.follow();
      else void this.ask();
    } catch (error) {
      this.error = error instanceof Failed ? error : new Failed(String(error), "", 0);
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
      if (events.some((event) => /^(ModelResponded|RunFailed|SignalTaken)$/.test(event.kind))) this.askSoon();
    });
    heard<Run>("run", (run) => {
      this.run = run;
      if (run.status === "live") return;
      source.close();
      void this.ask();
    });
    heard<{ path: string[]; text: string }>("words", ({ path, text }) => {
      for (const run of this.tree?.runs ?? []) {
        if (run.path.join("/") === path.join("/") && run.nowIteration?.isLive) run.nowIteration.words = text;
      }
    });
    heard<unknown>("gone", () => {
      this.lost = Date.now() / 1000;
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

  again(): void {
    this.source?.close();
    this.follow();
  }

  private askSoon(): void {
    if (this.later) return;
    this.later = window.setTimeout(() => {
      this.later = 0;
      void this.ask();
    }, 300);
  }

  /** What is not told by itself. */
  async ask(): Promise<void> {
    try {
      this.requests = await requestsOf(this.id);
    } catch {
      return; // what is lost is told by the stream
    }
    try {
      const told = await get<{ signals: Told[]; read_only: boolean }>(ofRun(this.id, "/signals"));
      this.signals = told.signals;
      this.isReadOnly = told.read_only;
    } catch {
      this.signals = []; // nothing can be said to this one
    }
    this.tell();
  }

  /** An event as it is in the store, with all of its texts. */
  entire(event: Happened): Promise<Happened> {
    if (!isCut(event.facts)) return Promise.resolve(event);
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
