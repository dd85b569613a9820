// The list of all runs as it is read in pages, and as it changes while somebody looks at it.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Refusal, Run, Runs } from "./api";
import { Failed, failureOf, get, listPage, query } from "./client";
import { goesOn } from "./logic/tree";
import type { Route } from "./route";

export const FILTERS = ["agent", "status", "failed", "since", "cost", "q", "tool", "attempts"] as const;

/** What the server is asked for by the filters of an address. */
export function wanted(route: Route): Record<string, string | number | undefined> {
  const days = Number(route["since"]);
  return {
    agent: route["agent"],
    status: route["status"],
    since: days > 0 ? Math.floor(Date.now() / 1000 - days * 86_400) : undefined,
    over_cost: route["cost"],
    q: route["q"],
    tool: route["tool"],
  };
}

export interface Listed {
  runs: Run[];
  more: boolean;
  /** Grows with each page, also with one in which nothing was found. */
  pages: number;
  error: Failed | null;
  isHere: boolean;
  lost: number | null;
  next: () => void;
  again: () => void;
  /** Drop these from the list. */
  drop: (ids: ReadonlySet<string>) => void;
}

/** Whether a list leaves out nothing that is new. */
function isPlain(key: string): boolean {
  const given = key.split("\n");
  return FILTERS.every((name, at) => !given[at] || name === "since");
}

/** A list with what was told of its runs, and before them those that are newer, if `takesNew`. */
function withNews(runs: Run[], told: Iterable<Run>, takesNew: boolean): Run[] {
  const known = new Map(runs.map((run) => [run.id, run]));
  const fresh: Run[] = [];
  for (const run of told) {
    if (known.has(run.id)) known.set(run.id, run);
    else if (takesNew && run.started > (runs[0]?.started ?? 0)) fresh.push(run);
  }
  fresh.sort((one, other) => other.started - one.started);
  return [...fresh, ...runs.map((run) => known.get(run.id) ?? run)];
}

export function useRuns(route: Route): Listed {
  const key = FILTERS.map((name) => route[name] ?? "").join("\n");
  const [state, set] = useState<Omit<Listed, "next" | "again" | "drop"> & { behind: string | null }>({ runs: [], more: false, behind: null, pages: 0, error: null, isHere: false, lost: null });
  const [tries, setTries] = useState(0);
  const busy = useRef(false);
  const now = useRef(key);
  now.current = key;
  const read = useRef<Runs | null>(null);
  /** What was told since a list was asked for: it may be newer than the list. */
  const news = useRef(new Map<string, Run>());
  const load = async (before: string | null) => {
    busy.current = true;
    try {
      if (!before) news.current.clear();
      const page = await get<Runs>(listPage(wanted(route), before));
      if (now.current !== key) return;
      if (!before) read.current = page;
      set((old) => {
        const told = withNews(page.runs, news.current.values(), !before && isPlain(key));
        const runs = before ? [...old.runs, ...told] : told;
        return { ...old, runs, more: page.more, behind: page.next, pages: old.pages + 1, error: null, isHere: true, lost: null };
      });
    } catch (error) {
      const failed = failureOf(error);
      if (before && failed.status === 404) return setTries((n) => n + 1); // somebody has forgotten the last one that was read
      set((old) => ({ ...old, error: failed, isHere: true, lost: failed.status === 0 ? (old.lost ?? Date.now() / 1000) : old.lost }));
    } finally {
      busy.current = false;
    }
  };
  useLayoutEffect(() => void load(null), [key, tries]); // before anything is painted, which would take a while
  useEffect(() => {
    if (!state.isHere) return; // the rows come first; nothing is missed, since it is said what was read
    const shown = read.current?.runs.filter((run) => goesOn(run)).map((run) => run.id).join(",");
    const source = new EventSource(`api/live${query({ newest: read.current?.newest, shown })}`);
    source.addEventListener("runs", (event) => {
      const told = JSON.parse((event as MessageEvent<string>).data) as Run[];
      for (const run of told) news.current.set(run.id, run);
      set((old) => ({ ...old, runs: withNews(old.runs, told, isPlain(now.current)), lost: null }));
    });
    source.addEventListener("gone", (event) => {
      const told = JSON.parse((event as MessageEvent<string>).data) as Refusal;
      source.close(); // asked again, it would only say so again
      set((old) => ({ ...old, error: new Failed(told.error, told.hint, 500), lost: null }));
    });
    source.onopen = () => set((old) => ({ ...old, lost: null }));
    source.onerror = () => set((old) => ({ ...old, lost: old.lost ?? Date.now() / 1000 }));
    return () => source.close();
  }, [state.isHere, tries]);
  return {
    ...state,
    next: () => {
      const behind = state.behind ?? state.runs[state.runs.length - 1]?.id;
      if (!busy.current && state.more && behind) void load(behind);
    },
    again: () => setTries((n) => n + 1),
    drop: (ids) => {
      const runs = state.runs.filter((run) => !ids.has(run.id));
      if (runs.length === 0) setTries((n) => n + 1);
      // The next page is asked for by the run before it, which has to be there.
      else set((old) => ({ ...old, runs: old.runs.filter((run) => !ids.has(run.id)), behind: old.behind && ids.has(old.behind) ? null : old.behind }));
    },
  };
}
