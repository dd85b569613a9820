// All runs: a table of which only the rows that are seen are there, and what can be done with those that are selected.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Run, Store } from "../api";
import { FILTERS, type Listed, useRuns } from "../listing";
import { exact, plural, size } from "../logic/format";
import { choose } from "../logic/selection";
import { goesOn } from "../logic/tree";
import { go, type Route } from "../route";
import { Filters, NoMatch } from "./filters";
import { Forget } from "./forget";
import { act, type Acts, announce, Key, Loading, Lost, Notice, Problem, To, useKeys, useNarrow, useWindow } from "./parts";
import { RunRow } from "./runrow";
import { Summary, useStore } from "./summary";
import { HelpButton } from "./top";

const COLUMNS = ["", "", "Agent", "Input", "Ending", "Att.", "Iter.", "Ch.", "In", "Cached", "Out", "Cost", "Time", "Began ↓"];

type Selection = ReturnType<typeof useSelection>;

/** The runs that are selected, and what is done with them. */
function useSelection(runs: Run[], canForget: boolean) {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const [unwanted, setUnwanted] = useState<Run[]>([]);
  const clicked = useRef<string | null>(null);
  const selected = ids.size > 0 ? runs.filter((run) => ids.has(run.id)) : [];
  return {
    ids,
    selected,
    canForget,
    /** Those that are asked about before they are forgotten. */
    unwanted,
    toggle: (id: string, isRange = false) => {
      setIds(choose(ids, runs.map((run) => run.id), id, isRange ? clicked.current : null));
      clicked.current = id;
    },
    select: (chosen: Run[]) => setIds(new Set(chosen.map((run) => run.id))),
    ask: () => {
      if (canForget) setUnwanted(selected);
    },
    askNoMore: () => setUnwanted([]),
    compare: () => {
      const [one, other] = selected;
      if (ids.size === 2 && one && other) go({ compare: `${one.id},${other.id}` });
    },
  };
}

/** The part of the list that is seen, and the row at which the keys are. */
function useRows(runs: Run[], listed: Listed, height: number) {
  const n = runs.length;
  const [index, setIndex] = useState(-1);
  const { ref, from, to, onScroll } = useWindow(n + (listed.more ? 1 : 0), height);
  useEffect(() => {
    if (to >= n - 20) listed.next();
  }, [to, n, listed.pages, listed.more]);
  const show = (at: number) => {
    const next = Math.max(0, Math.min(n - 1, at));
    setIndex(next);
    const element = ref.current;
    if (!element) return;
    const top = next * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight - 40) element.scrollTop = top + height - element.clientHeight + 40;
  };
  return { ref, from, to, onScroll, index, show };
}

function useRunKeys(runs: Run[], { index, show }: ReturnType<typeof useRows>, selection: Selection, field: { current: HTMLInputElement | null }): void {
  const run = runs[index];
  const open = () => {
    const at = document.activeElement;
    if (!run || at instanceof HTMLButtonElement || at instanceof HTMLAnchorElement) return false;
    go({ run: run.id });
    return true;
  };
  const select = (isRange: boolean) => {
    if (run) selection.toggle(run.id, isRange);
    return run !== undefined;
  };
  const showFailed = (by: number) => {
    for (let at = index + by; at >= 0 && at < runs.length; at += by) if (runs[at]?.code || runs[at]?.status === "died") return show(at);
  };
  const leave = () => {
    if (document.activeElement === field.current) field.current?.blur();
    else selection.select([]);
  };
  const acts: Acts = {
    j: () => show(index + 1),
    k: () => show(index - 1),
    l: open,
    Enter: open,
    x: () => select(false),
    X: () => select(true),
    e: () => showFailed(1),
    E: () => showFailed(-1),
    d: selection.compare,
    c: () => go({}),
    "/": () => field.current?.focus(),
    Delete: selection.ask,
    Escape: leave,
  };
  useKeys((key) => selection.unwanted.length === 0 && act(acts, key));
}

export function RunsPage({ route }: { route: Route }) {
  const listed = useRuns(route);
  const { error, isHere, lost } = listed;
  const [forgotten, setForgotten] = useState(0);
  const { store, days } = useStore(isHere, forgotten);
  const isNarrow = useNarrow();
  const [isSelecting, setSelecting] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const most = Number(route["attempts"]) || 0;
  const runs = useMemo(() => (most ? listed.runs.filter((run) => run.attempts > most) : listed.runs), [listed.runs, most]);
  const n = runs.length;
  const selection = useSelection(runs, store !== null && !store.read_only);
  const rows = useRows(runs, listed, isNarrow ? 56 : 32);
  useRunKeys(runs, rows, selection, field);
  useEffect(() => {
    document.title = "Runs · journeyman";
  }, []);
  useEffect(() => {
    if (isHere) announce(plural(n, "run"));
  }, [n, isHere]);
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
            <button type="button" class="plain" aria-pressed={isSelecting} onClick={() => (setSelecting(!isSelecting), selection.select([]))}>
              {isSelecting ? "Done" : "Select"}
            </button>
          )}
          <HelpButton />
        </span>
      </header>
      {store?.notice && <Notice look="warn">{store.notice}</Notice>}
      <Summary runs={listed.runs} days={days} isNarrow={isNarrow} />
      <Filters route={route} runs={listed.runs} isNarrow={isNarrow} field={field}>
        {exact(n)}
        {listed.more ? "+" : ""} of {store ? exact(store.runs) : "…"}
      </Filters>
      {lost !== null && (
        <Lost since={lost} again={listed.again}>
          Nothing is lost, runs go on.
        </Lost>
      )}
      {error && error.status !== 0 && <Problem error={error} again={listed.again} />}
      <main class="tablehold" aria-label="Runs">
        {!isHere || (n === 0 && listed.more && !error) ? (
          <Loading />
        ) : n > 0 || error ? (
          <Table runs={runs} more={listed.more} rows={rows} selection={selection} isNarrow={isNarrow} isSelecting={isSelecting} />
        ) : FILTERS.some((name) => route[name]) ? (
          <NoMatch route={route} />
        ) : (
          <Empty store={store} />
        )}
      </main>
      {selection.ids.size > 0 && <SelectedBar selection={selection} />}
      {selection.unwanted.length > 0 && (
        <Forget
          runs={selection.unwanted}
          keep={(onlyOpen) => {
            if (onlyOpen) selection.select(selection.unwanted.filter((run) => !goesOn(run)));
            selection.askNoMore();
          }}
          gone={() => {
            listed.drop(new Set(selection.unwanted.map((run) => run.id)));
            setForgotten(forgotten + 1);
            selection.select([]);
            selection.askNoMore();
          }}
          failed={listed.again}
        />
      )}
    </div>
  );
}

interface TableGiven {
  runs: Run[];
  more: boolean;
  rows: ReturnType<typeof useRows>;
  selection: Selection;
  isNarrow: boolean;
  isSelecting: boolean;
}

function Table({ runs, more, rows: { ref, from, to, onScroll, index }, selection, isNarrow, isSelecting }: TableGiven) {
  const n = runs.length;
  const height = isNarrow ? 56 : 32;
  return (
    <div class="rtable" role="table" aria-label="Runs" aria-rowcount={more ? -1 : n}>
      {!isNarrow && (
        <div class="rhead" role="rowgroup">
          <div class="rrow head" role="row">
            {COLUMNS.map((name, at) => (
              <span key={at} role="columnheader" class={at > 4 ? "num" : ""}>
                {name || <span class="sr">{["Select", "State"][at]}</span>}
              </span>
            ))}
          </div>
        </div>
      )}
      <div class={`rbody${selection.ids.size > 0 ? " under" : ""}`} role="rowgroup" ref={ref} onScroll={onScroll} tabIndex={0} aria-label="Runs, the newest first">
        <div class="tall" role="presentation" style={{ height: `${(n + (more ? 1 : 0)) * height}px` }}>
          {runs.slice(from, to).map((run, at) => (
            <RunRow
              key={run.id}
              run={run}
              top={(from + at) * height}
              isNarrow={isNarrow}
              isSelecting={isSelecting}
              isHere={from + at === index}
              isSelected={selection.ids.has(run.id)}
              toggle={(isRange) => selection.toggle(run.id, isRange)}
            />
          ))}
          {more && to > n && (
            <div class="rrow ghostrow" style={{ transform: `translateY(${n * height}px)` }} role="presentation">
              Older runs are read…
            </div>
          )}
        </div>
      </div>
    </div>
  );
}

function SelectedBar({ selection: { ids, selected, canForget, compare, ask, select } }: { selection: Selection }) {
  return (
    <div class="floating" role="region" aria-label="Selected runs">
      <b>{ids.size} selected</b>
      <span class="quiet wideonly">{selected.map((run) => run.agent).slice(0, 4).join(", ")}</span>
      <button type="button" class="primary" disabled={ids.size !== 2} onClick={compare}>
        Compare <Key>d</Key>
      </button>
      <button type="button" onClick={() => exportAll([...ids])}>
        Export
      </button>
      {canForget && (
        <button type="button" class="danger" onClick={ask}>
          Forget… <Key>del</Key>
        </button>
      )}
      <button type="button" class="plain wideonly" onClick={() => select([])}>
        <span class="sr">Select none</span> <Key>esc</Key>
      </button>
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
