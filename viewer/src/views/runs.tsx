// All runs: a table in pages from the server, of which only the rows that are seen are there.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Day, Run, Runs, Store } from "../api";
import { Failed, get, listPage, query } from "../client";
import { age, clock, count, duration, exact, money, percent, plural, size, utc } from "../logic/format";
import { choose } from "../logic/selection";
import { stateOf } from "../logic/tree";
import { sentTokens } from "../logic/values";
import { go, goOn, href, type Route } from "../route";
import { Forget } from "./forget";
import { announce, Icon, Key, Loading, Problem, StateIcon, To, useKeys, useNarrow, useWindow } from "./parts";
import { HelpButton } from "./top";

const FILTERS = ["agent", "status", "failed", "since", "cost", "q", "tool", "attempts"] as const;
const DAYS: [string, string][] = [["1", "today"], ["7", "7 days"], ["14", "14 days"], ["30", "30 days"]];

function wanted(route: Route): Record<string, string | number | undefined> {
  const days = Number(route["since"]);
  return {
    agent: route["agent"],
    status: route["status"] === "failed" ? undefined : route["status"],
    failed: route["status"] === "failed" ? 1 : undefined,
    since: days > 0 ? Math.floor(Date.now() / 1000 - days * 86_400) : undefined,
    over_cost: route["cost"],
    q: route["q"],
    tool: route["tool"],
  };
}

interface Listed {
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

function useRuns(route: Route): Listed {
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
      const failed = error instanceof Failed ? error : new Failed(String(error), "", 0);
      if (before && failed.status === 404) return setTries((n) => n + 1); // somebody has forgotten the last one that was read
      set((old) => ({ ...old, error: failed, isHere: true, lost: failed.status === 0 ? (old.lost ?? Date.now() / 1000) : old.lost }));
    } finally {
      busy.current = false;
    }
  };
  useLayoutEffect(() => void load(null), [key, tries]); // before anything is painted, which would take a while
  useEffect(() => {
    if (!state.isHere) return; // the rows come first; nothing is missed, since it is said what was read
    const shown = read.current?.runs.filter((run) => run.status === "live").map((run) => run.id).join(",");
    const source = new EventSource(`api/live${query({ newest: read.current?.newest, shown })}`);
    source.addEventListener("runs", (event) => {
      const told = JSON.parse((event as MessageEvent<string>).data) as Run[];
      for (const run of told) news.current.set(run.id, run);
      set((old) => ({ ...old, runs: withNews(old.runs, told, isPlain(now.current)), lost: null }));
    });
    source.addEventListener("gone", (event) => {
      const told = JSON.parse((event as MessageEvent<string>).data) as { error: string; hint: string };
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

export function RunsPage({ route }: { route: Route }) {
  const listed = useRuns(route);
  const { error, isHere, lost } = listed;
  const [store, setStore] = useState<Store | null>(null);
  const [days, setDays] = useState<Day[]>([]);
  const isNarrow = useNarrow();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [unwanted, setUnwanted] = useState<Run[]>([]);
  const [forgotten, setForgotten] = useState(0);
  const clicked = useRef<string | null>(null);
  const [isSelecting, setSelecting] = useState(false);
  const [isFiltering, setFiltering] = useState(false);
  const [index, setIndex] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const most = Number(route["attempts"]) || 0;
  const runs = useMemo(() => (most ? listed.runs.filter((run) => run.attempts > most) : listed.runs), [listed.runs, most]);
  useEffect(() => {
    document.title = "Runs · journeyman";
  }, []);
  useEffect(() => {
    if (!isHere) return; // the rows come first
    get<Store>("api/store").then(setStore).catch(() => undefined); // what fails is told by the list
    get<{ days: Day[] }>("api/days?days=30").then((told) => setDays(told.days)).catch(() => undefined);
  }, [isHere, forgotten]);
  const n = runs.length;
  const height = isNarrow ? 56 : 32;
  const { ref, from, to, onScroll } = useWindow(n + (listed.more ? 1 : 0), height);
  useEffect(() => {
    if (to >= n - 20) listed.next();
  }, [to, n, listed.pages, listed.more]);
  const hasFilters = FILTERS.some((name) => route[name]);
  const toggle = (id: string, isRange = false) => {
    setSelected(choose(selected, runs.map((run) => run.id), id, isRange ? clicked.current : null));
    clicked.current = id;
  };
  const canForget = store !== null && !store.read_only;
  const ask = () => canForget && setUnwanted(runs.filter((run) => selected.has(run.id)));
  const compare = () => {
    const [one, other] = runs.filter((run) => selected.has(run.id)).map((run) => run.id);
    if (selected.size === 2 && one && other) go({ compare: `${one},${other}` });
  };
  const show = (at: number) => {
    const next = Math.max(0, Math.min(n - 1, at));
    setIndex(next);
    const element = ref.current;
    if (!element) return;
    const top = next * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight - 40) element.scrollTop = top + height - element.clientHeight + 40;
  };
  useKeys(
    (key) => {
      const run = runs[index];
      if (unwanted.length) return false;
      if (key === "j" || key === "ArrowDown") show(index + 1);
      else if (key === "k" || key === "ArrowUp") show(index - 1);
      else if ((key === "Enter" || key === "l" || key === "ArrowRight") && run && !(document.activeElement instanceof HTMLButtonElement) && !(document.activeElement instanceof HTMLAnchorElement)) go({ run: run.id });
      else if ((key === "x" || key === "X") && run) toggle(run.id, key === "X");
      else if (key === "Delete") ask();
      else if (key === "d") compare();
      else if (key === "e" || key === "E") {
        const by = key === "e" ? 1 : -1;
        for (let at = index + by; at >= 0 && at < n; at += by) if (runs[at]?.code || runs[at]?.status === "died") return show(at), true;
      } else if (key === "/") field.current?.focus();
      else if (key === "c") go({});
      else if (key === "Escape") {
        if (document.activeElement === field.current) field.current?.blur();
        else setSelected(new Set());
      } else return false;
      return true;
    },
  );
  useEffect(() => {
    if (isHere) announce(plural(n, "run"));
  }, [n, isHere]);
  const today = Math.floor(Date.now() / 86_400_000) * 86_400;
  const day = days.find((each) => each.day === today) ?? { runs: 0, failed: 0, cost: 0 };
  const span = days.filter((each) => each.day > today - 14 * 86_400);
  const inSpan = span.reduce((all, each) => all + each.runs, 0);
  const live = listed.runs.filter((run) => run.status === "live").length;
  const waiting = listed.runs.filter((run) => run.waits).length;
  const agents = [...new Set(listed.runs.map((run) => run.agent))].sort();
  return (
    <div class={`page runs${lost ? " stale" : ""}`}>
      <header class="top">
        <nav aria-label="Where you are">
          <To to={{}} class="wideonly">
            journeyman
          </To>
          <i class="slash wideonly">/</i>
          <h1>Runs</h1>
          <i class="slash wideonly">/</i>
          <span class="mono id">{store?.place ?? ""}</span>
        </nav>
        <span class="actions">
          {store && <span class="quiet wideonly">{size(store.bytes)}{store.read_only ? ", read only" : ""}</span>}
          {isNarrow && (
            <button type="button" class="plain" aria-pressed={isSelecting} onClick={() => (setSelecting(!isSelecting), setSelected(new Set()))}>
              {isSelecting ? "Done" : "Select"}
            </button>
          )}
          <HelpButton />
        </span>
      </header>
      {store?.notice && (
        <div class="notice warn" role="note">
          <p>{store.notice}</p>
        </div>
      )}
      <section class="summary" aria-label="Today">
        <div>
          <span>{isNarrow ? "Today" : "Runs today"}</span>
          <b>{count(day.runs)}</b> <em class="wideonly">of {exact(inSpan)} in 14 days</em>
        </div>
        <div>
          <span>Failed</span>
          <b class={day.failed ? "bad" : ""}>{count(day.failed)}</b> <em class="wideonly">{day.runs ? `${((100 * day.failed) / day.runs).toFixed(1)} %` : ""}</em>
        </div>
        <div>
          <span>{isNarrow ? "Cost" : "Cost today"}</span>
          <b>{day.cost >= 1 || !day.cost ? `$${day.cost.toFixed(2)}` : money(day.cost)}</b> <em class="wideonly">{day.runs ? `$${(day.cost / day.runs).toFixed(3)} a run` : ""}</em>
        </div>
        <div class="wideonly">
          <span>Live</span>
          <b class={live ? "accent" : ""}>{count(live)}</b> {waiting > 0 && <em class="wait">{waiting === 1 ? "1 waits for you" : `${waiting} wait for you`}</em>}
        </div>
        <Sparkline days={days} today={today} />
      </section>
      <div class="filters" role="search">
        <span class="searchfield">
          <Icon shape="search" />
          <input
            ref={field}
            type="search"
            value={route["q"] ?? ""}
            aria-label="Search input, words and tools"
            placeholder={isNarrow ? "Search" : "Search input, words and tools"}
            onChange={(event) => goOn({ q: event.currentTarget.value }, true)}
            onKeyDown={(event) => event.key === "Enter" && goOn({ q: event.currentTarget.value }, true)}
          />
          <Key>/</Key>
        </span>
        {isNarrow && (
          <button type="button" class={`choice${FILTERS.some((name) => name !== "q" && route[name]) ? " on" : ""}`} aria-expanded={isFiltering} onClick={() => setFiltering(!isFiltering)}>
            <Icon shape="filter" /> Filter
          </button>
        )}
        {(!isNarrow || isFiltering) && <>
        <Choice name="Status" at={route["status"] ?? ""} choices={[["live", "live"], ["success", "success"], ["failed", "failed"], ["failure", "failure"], ["cancelled", "cancelled"], ["left", "left"], ["died", "died"]]} choose={(status) => goOn({ status }, true)} />
        <Choice name="Agent" at={route["agent"] ?? ""} choices={[...new Set([...agents, ...(route["agent"] ? [route["agent"]] : [])])].map((each) => [each, each])} choose={(agent) => goOn({ agent }, true)} />
        <Choice name="Since" at={route["since"] ?? ""} choices={DAYS} choose={(since) => goOn({ since }, true)} />
        <Choice name="Cost over" at={route["cost"] ?? ""} choices={["0.01", "0.05", "0.1", "1"].map((each) => [each, `$${Number(each).toFixed(2)}`])} choose={(cost) => goOn({ cost }, true)} />
        <button type="button" class={`choice${most ? " on" : ""}`} aria-pressed={most > 0} onClick={() => goOn({ attempts: most ? "" : "1" }, true)}>
          Attempts over 1
        </button>
        </>}
        <span class="spacer" />
        <span class="quiet wideonly">
          {exact(n)}
          {listed.more ? "+" : ""} of {store ? exact(store.runs) : "…"}
        </span>
      </div>
      {lost !== null && (
        <div class="notice sunk" role="status">
          <StateIcon state="cancelled" />
          <p>
            <b>The viewer's process does not answer.</b> What you see is as of {clock(lost)}. Nothing is lost, runs go on.
          </p>
          <button type="button" onClick={listed.again}>
            Try now
          </button>
        </div>
      )}
      {error && error.status !== 0 && <Problem error={error} again={listed.again} />}
      <main class="tablehold" aria-label="Runs">
        {!isHere || (n === 0 && listed.more && !error) ? (
          <Loading />
        ) : n === 0 && !error ? (
          hasFilters ? (
            <NoMatch route={route} />
          ) : (
            <Empty store={store} />
          )
        ) : (
          <div class="rtable" role="table" aria-label="Runs" aria-rowcount={listed.more ? -1 : n}>
            {!isNarrow && (
              <div class="rhead" role="rowgroup">
                <div class="rrow head" role="row">
                  {["", "", "Agent", "Input", "Ending", "Att.", "Iter.", "Ch.", "In", "Cached", "Out", "Cost", "Time", "Began ↓"].map((name, at) => (
                    <span key={at} role="columnheader" class={at > 4 ? "num" : ""} >
                      {name || <span class="sr">{["Select", "State"][at]}</span>}
                    </span>
                  ))}
                </div>
              </div>
            )}
            <div class={`rbody${selected.size > 0 ? " under" : ""}`} role="rowgroup" ref={ref} onScroll={onScroll} tabIndex={0} aria-label="Runs, the newest first">
              <div class="tall" role="presentation" style={{ height: `${(n + (listed.more ? 1 : 0)) * height}px` }}>
                {runs.slice(from, to).map((run, at) => (
                  <RunRow
                    key={run.id}
                    run={run}
                    top={(from + at) * height}
                    isNarrow={isNarrow}
                    isSelecting={isSelecting}
                    isHere={from + at === index}
                    isSelected={selected.has(run.id)}
                    toggle={(isRange) => toggle(run.id, isRange)}
                  />
                ))}
                {listed.more && to > n && (
                  <div class="rrow ghostrow" style={{ transform: `translateY(${n * height}px)` }} role="presentation">
                    Older runs are read…
                  </div>
                )}
              </div>
            </div>
          </div>
        )}
      </main>
      {selected.size > 0 && (
        <div class="floating" role="region" aria-label="Selected runs">
          <b>{selected.size} selected</b>
          <span class="quiet wideonly">{runs.filter((run) => selected.has(run.id)).map((run) => run.agent).slice(0, 4).join(", ")}</span>
          <button type="button" class="primary" disabled={selected.size !== 2} onClick={compare}>
            Compare <Key>d</Key>
          </button>
          <button type="button" onClick={() => exportAll([...selected])}>
            Export
          </button>
          {canForget && (
            <button type="button" class="danger" onClick={ask}>
              Forget… <Key>del</Key>
            </button>
          )}
          <button type="button" class="plain wideonly" onClick={() => setSelected(new Set())}>
            <span class="sr">Select none</span> <Key>esc</Key>
          </button>
        </div>
      )}
      {unwanted.length > 0 && (
        <Forget
          runs={unwanted}
          keep={(onlyOpen) => {
            if (onlyOpen) setSelected(new Set(unwanted.flatMap((run) => (run.status === "live" ? [] : [run.id]))));
            setUnwanted([]);
          }}
          gone={() => {
            listed.drop(new Set(unwanted.map((run) => run.id)));
            setForgotten(forgotten + 1);
            setSelected(new Set());
            setUnwanted([]);
          }}
          failed={listed.again}
        />
      )}
    </div>
  );
}

/** Download each of these as one file that opens offline. */
function exportAll(ids: string[]): void {
  for (const id of ids) {
    const link = document.createElement("a");
    link.href = `api/runs/${encodeURIComponent(id)}/export?as=html`;
    link.download = "";
    link.click();
  }
}

function Choice({ name, at, choices, choose }: { name: string; at: string; choices: [string, string][]; choose: (value: string) => void }) {
  return (
    <label class={`choice${at ? " on" : ""}`}>
      <span>{name}</span> {at && <b>{choices.find(([value]) => value === at)?.[1] ?? at}</b>} <Icon shape="down" />
      <select aria-label={name} value={at} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">any</option>
        {choices.map(([value, told]) => (
          <option key={value} value={value}>
            {told}
          </option>
        ))}
      </select>
    </label>
  );
}

function Sparkline({ days, today }: { days: Day[]; today: number }) {
  const known = new Map(days.map((day) => [day.day, day]));
  const shown = Array.from({ length: 14 }, (_, at) => known.get(today - (13 - at) * 86_400) ?? { day: today - (13 - at) * 86_400, runs: 0, failed: 0, cost: 0 });
  const most = Math.max(...shown.map((day) => day.cost), 1e-9);
  const date = (at: number) => new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  return (
    <div class="spark" aria-label={`Cost by day, 14 days, at most ${money(most)} a day`} role="img">
      <p class="wideonly">
        Cost by day
        <span class="bad">of failed runs</span>
      </p>
      <div>
        <div class="columns">
          {shown.map((day) => (
            <i key={day.day} class={day.day === today ? "today" : ""} style={{ height: `${Math.max(day.runs ? 8 : 0, (100 * day.cost) / most)}%` }} title={`${date(day.day)}: ${plural(day.runs, "run")}, ${day.failed} failed, ${money(day.cost)}`}>
              {day.failed > 0 && <b style={{ height: `${Math.max(7, (100 * day.failed) / Math.max(day.runs, 1))}%` }} />}
            </i>
          ))}
        </div>
        <div class="dates wideonly">
          <span>{date(shown[0]?.day ?? today)}</span>
          <span>today</span>
        </div>
      </div>
    </div>
  );
}

interface RunRowGiven {
  run: Run;
  top: number;
  isNarrow: boolean;
  isSelecting: boolean;
  isHere: boolean;
  isSelected: boolean;
  toggle: (isRange: boolean) => void;
}

function ending(run: Run): { told: string; look: string } {
  if (run.waits) return { told: `waits for ${run.waits}`, look: "wait" };
  if (run.status === "live") return { told: `attempt ${Math.max(run.attempts, 1)} · iteration ${run.iterations}`, look: "accent" };
  if (run.status === "died") return { told: "its process died", look: "bad" };
  if (run.code) return { told: run.code, look: run.code === "EXECUTION_CANCELLED" ? "mono quiet" : "mono bad" };
  if (run.status === "success") return { told: "SUCCESS", look: "mono" };
  return { told: run.status, look: "" };
}

function RunRow({ run, top, isNarrow, isSelecting, isHere, isSelected, toggle }: RunRowGiven) {
  const sent = sentTokens(run.usage);
  const now = Date.now() / 1000;
  const told = ending(run);
  const state = stateOf(run.status === "left" && run.code ? "failure" : run.code === "EXECUTION_CANCELLED" ? "cancelled" : run.status, Boolean(run.waits));
  const took = (run.status === "live" ? now : (run.ended ?? run.seen)) - run.started;
  const place = { transform: `translateY(${top}px)` };
  const look = `rrow${isHere ? " here" : ""}${isSelected ? " selected" : ""}`;
  const open = (event: MouseEvent) => {
    if ((event.target as HTMLElement).closest("input,a,label") || event.metaKey || event.ctrlKey) return;
    if (isSelecting) toggle(event.shiftKey);
    else go({ run: run.id });
  };
  const cached = percent(run.usage.cache_read_tokens, sent);
  if (isNarrow) {
    const inShort = told.look === "mono" ? [plural(run.attempts, "attempt"), plural(run.iterations, "iteration"), run.children ? `${run.children} children` : ""].filter(Boolean).join(", ") : told.told;
    return (
      <div class={`${look} two`} role="row" style={place} onClick={open}>
        <span role="cell">{isSelecting ? <input type="checkbox" checked={isSelected} aria-label={`Select ${run.agent}`} onClick={(event) => toggle(event.shiftKey)} /> : <StateIcon state={state} />}</span>
        <span class="first" role="cell">
          <a href={href({ run: run.id })} onClick={(event) => (event.preventDefault(), go({ run: run.id }))}>
            {run.agent}
          </a>{" "}
          {run.input}
        </span>
        <span class="second" role="cell">
          <span class={told.look === "mono" ? "quiet" : told.look}>{inShort}</span>
          <span class="num">{money(run.usage.cost)}</span>
          <span class="num quiet">{duration(took)}</span>
          <span class={`num ${run.status === "live" ? "accent" : "quiet"}`}>{run.status === "live" ? "live" : age(run.started, now).replace(" ago", "")}</span>
        </span>
      </div>
    );
  }
  return (
    <div class={look} role="row" style={place} onClick={open}>
      <span role="cell" class="box">
        <input type="checkbox" checked={isSelected} aria-label={`Select ${run.agent}, ${run.input.slice(0, 40)}`} onClick={(event) => toggle(event.shiftKey)} />
      </span>
      <span role="cell">
        <StateIcon state={state} />
      </span>
      <span role="cell" class="agent">
        <a href={href({ run: run.id })} onClick={(event) => (event.preventDefault(), go({ run: run.id }))}>
          {run.agent}
        </a>
      </span>
      <span role="cell" class="input">
        {run.input || (run.has_content ? "" : "not recorded")}
      </span>
      <span role="cell" class={told.look}>
        {told.told}
      </span>
      <span role="cell" class={`num${run.attempts > 1 ? " strong" : ""}`}>
        {count(run.attempts)}
      </span>
      <span role="cell" class="num">
        {count(run.iterations)}
      </span>
      <span role="cell" class="num">
        {run.children ? count(run.children) : ""}
      </span>
      <span role="cell" class="num" title={exact(sent)}>
        {count(sent)}
      </span>
      <span role="cell" class="num cached">
        {cached}{" "}
        <i class={`mini${sent ? "" : " none"}`}>
          <b style={{ width: sent ? `${(100 * run.usage.cache_read_tokens) / sent}%` : "0" }} />
        </i>
      </span>
      <span role="cell" class="num">
        {count(run.usage.output_tokens)}
      </span>
      <span role="cell" class="num dark">
        {money(run.usage.cost)}
      </span>
      <span role="cell" class="num">
        {duration(took)}
      </span>
      <span role="cell" class="num quiet" title={utc(run.started)}>
        {age(run.started, now)}
      </span>
    </div>
  );
}

function Empty({ store }: { store: Store | null }) {
  return (
    <section class="state">
      <h2>No runs yet</h2>
      <p>
        Runs are recorded into <code>{store?.place ?? "this store"}</code>. Make one:
      </p>
      <pre>$ journeyman demo</pre>
      <p class="quiet">
        This page shows it as soon as it begins. Another store: <code>journeyman view STORE</code>
      </p>
    </section>
  );
}

const NAMES: Record<string, string> = { agent: "agent", status: "status", since: "time", cost: "cost", q: "search", tool: "tool", attempts: "attempts" };

function NoMatch({ route }: { route: Route }) {
  const [without, set] = useState<[string, number][]>([]);
  const given = FILTERS.filter((name) => route[name]);
  const key = given.map((name) => `${name}=${route[name] ?? ""}`).join("&");
  useEffect(() => {
    let isHere = true;
    const ask = async () => {
      const told: [string, number][] = [];
      for (const name of given) {
        const found = await get<{ runs: Run[]; more: boolean }>(`api/runs${query({ ...wanted({ ...route, [name]: "" }), limit: 100 })}`);
        told.push([name, found.runs.length]);
      }
      if (isHere) set(told.filter(([, n]) => n > 0).toSorted(([, one], [, other]) => other - one));
    };
    ask().catch(() => undefined); // it is only a hint
    return () => {
      isHere = false;
    };
  }, [key]);
  const best = without[0];
  return (
    <section class="state">
      <h2>No run matches</h2>
      <p>
        {given.map((name, n) => (
          <span key={name}>
            {n > 0 && ", "}
            {NAMES[name]} <b>{route[name]}</b>
          </span>
        ))}
        . {best && `Without the ${NAMES[best[0]]} there ${best[1] === 1 ? "is 1" : `are ${best[1]}${best[1] === 100 ? " or more" : ""}`}.`}
      </p>
      <p class="buttons">
        {best && (
          <button type="button" onClick={() => goOn({ [best[0]]: "" }, true)}>
            Drop the {NAMES[best[0]]}
          </button>
        )}
        <button type="button" class="plain" onClick={() => go({}, true)}>
          Clear all
        </button>
      </p>
    </section>
  );
}
