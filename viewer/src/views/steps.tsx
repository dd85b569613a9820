// The steps of a run: the tree at the left, and at the right what is selected.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Run, Sent } from "../api";
import { isMissed, told } from "../logic/cache";
import { plural } from "../logic/format";
import { requestsByStep } from "../logic/requests";
import { childrenOf, isFailing, reveal, type Row, rowsOf, selectedAtFirst } from "../logic/rows";
import { goesOn, type Step, type Tree } from "../logic/tree";
import type { Recording } from "../recording";
import { goOn, type Route } from "../route";
import { Details, type Tab, tabsOf } from "./details";
import { Head, useNow } from "./head";
import { Operator } from "./operator";
import { act, type Acts, announce, copy, Icon, Key, StateIcon, useKeys, useNarrow } from "./parts";
import { TreeView } from "./tree";

type Selection = ReturnType<typeof useSelection>;

/** Which step is selected: one that was chosen or linked to, or the newest while somebody follows what is live. */
function useSelection(tree: Tree, wanted: string | null, isLive: boolean) {
  const [chosen, setChosen] = useState<string | null>(null);
  const [follows, setFollows] = useState(isLive && !wanted);
  const seen = useRef(0);
  const first = useMemo(() => (wanted === null && !follows ? selectedAtFirst(tree) : null), [tree.version, wanted, follows]);
  const newest = follows ? (tree.waits ?? newestOf(tree)) : null;
  const key = chosen ?? wanted ?? newest?.key ?? first?.key ?? "";
  useEffect(() => setChosen(null), [wanted]);
  useEffect(() => {
    if (follows) seen.current = tree.events;
  }, [follows, tree.version]);
  return {
    key,
    step: tree.steps.get(key) ?? (wanted === null ? first : null),
    follows,
    /** How many events came since it was followed. */
    fresh: tree.events - seen.current,
    pick: (key: string, replace = true) => {
      setFollows(false);
      setChosen(key);
      goOn({ at: key }, replace && wanted !== null);
    },
    follow: () => {
      setFollows(true);
      setChosen(null);
      goOn({ at: "" }, true);
    },
  };
}

type Listed = ReturnType<typeof useRows>;

/** The rows that are shown: which are open, and which are found. */
function useRows(tree: Tree, selected: string) {
  const [opened, setOpened] = useState(() => new Map<string, boolean>());
  const [filter, setFilter] = useState("");
  const [errorsOnly, setErrorsOnly] = useState(false);
  // A link leads to a step that may be closed: its way is opened once.
  const revealed = useRef("");
  useEffect(() => {
    const step = tree.steps.get(selected);
    if (!step || revealed.current === selected) return;
    revealed.current = selected;
    const found = rowsOf(tree, { opened, filter: "", errorsOnly: false }).rows;
    if (!found.some((row) => row.key === selected || row.only?.key === selected)) {
      const next = new Map(opened);
      reveal(step, next);
      setOpened(next);
    }
  }, [selected, tree.version]);
  const { rows, found, all } = useMemo(() => rowsOf(tree, { opened, filter, errorsOnly }), [tree.version, opened, filter, errorsOnly]);
  return {
    rows,
    found,
    all,
    index: rows.findIndex((row) => row.key === selected || (row.only?.key === selected && !row.isOpen)),
    filter,
    setFilter,
    errorsOnly,
    setErrorsOnly,
    toggle: (row: Row) => setOpened(new Map(opened).set(row.step.key, !row.isOpen)),
    showHidden: (row: Row) => setOpened(new Map(opened).set(`${row.step.key}/more`, true)),
    clear: () => {
      setOpened(new Map());
      setFilter("");
      setErrorsOnly(false);
    },
  };
}

const SPLIT = "journeyman.split";

/** How wide the left side is. */
function useSplit(rows: readonly Row[], isLive: boolean) {
  const [split, setSplit] = useState(() => Number(localStorage.getItem(SPLIT)) || 0);
  const width = split || defaultSplit(rows, isLive);
  const widen = (by: number) => {
    const next = Math.max(280, width + by);
    localStorage.setItem(SPLIT, String(next));
    setSplit(next);
  };
  const drag = (event: PointerEvent) => {
    const start = event.clientX;
    const move = (to: PointerEvent) => setSplit(Math.max(280, Math.min(innerWidth - 360, width + to.clientX - start)));
    const end = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      const at = document.querySelector<HTMLElement>(".left")?.clientWidth;
      if (at) localStorage.setItem(SPLIT, String(at));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  };
  return { width, widen, drag };
}

interface KeysGiven {
  listed: Listed;
  selection: Selection;
  tabs: Tab[];
  isLive: boolean;
  /** Go back from a step to all of them; null where both are seen. */
  back: (() => void) | null;
  widen: (by: number) => void;
  field: { current: HTMLInputElement | null };
}

function useStepKeys({ listed, selection, tabs, isLive, back, widen, field }: KeysGiven): void {
  const { rows, index, toggle } = listed;
  const row = rows[index];
  const move = (by: number, test: (row: Row) => boolean = () => true) => {
    for (let at = Math.max(index, by > 0 ? -1 : 0) + by; at >= 0 && at < rows.length; at += by) {
      const next = rows[at];
      if (!next || !test(next)) continue;
      if (next.hidden) listed.showHidden(next);
      else selection.pick(next.key);
      return true;
    }
    return false;
  };
  const open = () => {
    if (row?.canOpen && !row.isOpen) toggle(row);
    else if (row?.isOpen) move(1);
  };
  const close = () => {
    if (row?.isOpen && row.canOpen) return toggle(row);
    const above = row && rows.slice(0, index).findLast((each) => each.level < row.level);
    if (above) selection.pick(above.key);
  };
  const leave = (target: HTMLElement, isInside: boolean) => {
    if (target instanceof HTMLInputElement || isInside) {
      target.blur();
      document.querySelector<HTMLElement>(".tbody")?.focus();
    } else if (back) back();
    else if (listed.filter) listed.setFilter("");
  };
  const acts: Acts = {
    j: () => move(1),
    k: () => move(-1),
    l: open,
    h: close,
    e: () => move(1, (each) => isFailing(each.step)),
    E: () => move(-1, (each) => isFailing(each.step)),
    "/": () => field.current?.focus(),
    c: listed.clear,
    d: () => {
      if (tabs.some((each) => each.id === "request")) goOn({ tab: "request", as: "changes" }, true);
    },
    u: () => void copy(location.href, "The link"),
    f: () => {
      if (isLive) selection.follow();
    },
    "[": () => widen(-40),
    "]": () => widen(40),
    Enter: () => {
      document.querySelector<HTMLElement>(".details [role=tab][aria-selected=true]")?.focus();
      return false;
    },
  };
  useKeys((key, event) => {
    const target = event.target as HTMLElement;
    const isInside = target.closest(".details") !== null;
    if (isInside && (key.startsWith("Arrow") || key === "Enter")) return false;
    const tab = /^[1-5]$/.test(key) && tabs[Number(key) - 1];
    if (tab) goOn({ tab: tab.id }, true);
    return Boolean(tab) || act({ ...acts, Escape: () => leave(target, isInside) }, key);
  });
}

function useAnnouncements(tree: Tree, run: Run): void {
  useEffect(() => {
    if (tree.waits) announce(`${tree.waits.title} waits for you`, true);
  }, [tree.waits?.key]);
  useEffect(() => {
    if (goesOn(run)) announce(plural(run.iterations, "iteration"));
  }, [run.iterations]);
}

export function Steps({ recording, tree, route }: { recording: Recording; tree: Tree; route: Route }) {
  const run = recording.run ?? tree.recording;
  const isLive = goesOn(run);
  const now = useNow(isLive);
  const isNarrow = useNarrow();
  const isMiddle = useNarrow(1100) && !isNarrow;
  const isBeside = !isNarrow && !isMiddle;
  const wanted = route["at"] ?? null;
  const selection = useSelection(tree, wanted, isLive);
  const listed = useRows(tree, selection.key);
  const { width, widen, drag } = useSplit(listed.rows, isLive);
  const field = useRef<HTMLInputElement>(null);
  const requests = useMemo(() => requestsByStep(tree, recording.requests), [tree.runs.length, recording.requests]);
  const missed = useMemo(() => missedOf(tree, recording.requests, requests), [requests, recording.isWhole]);
  const tabs = selection.step ? tabsOf(selection.step, requests) : [];
  const tab = tabs.find((each) => each.id === route["tab"])?.id ?? tabs[0]?.id ?? "";
  const waitsFor = tree.waits?.key ?? "";
  const [dismissed, setDismissed] = useState("");
  const isDetail = isNarrow && (wanted !== null || (waitsFor !== "" && isLive && dismissed !== waitsFor));
  const back = () => {
    setDismissed(waitsFor);
    goOn({ at: "" });
  };
  useAnnouncements(tree, run);
  useStepKeys({ listed, selection, tabs, isLive, back: isDetail || isMiddle ? back : null, widen, field });
  const lastAt = Math.max(run.ended ?? 0, run.seen, run.started + 0.001);
  const nowAt = Math.max(now, lastAt);
  const scale = isLive ? { start: run.started, end: nowAt + (nowAt - run.started) * 0.06, now: nowAt } : { start: run.started, end: lastAt, now: null };
  const operator = isLive && !recording.isReadOnly && <Operator recording={recording} tree={tree} isNarrow={isNarrow} />;
  return (
    <>
      {!isDetail && <Head tree={tree} recording={recording} now={now} />}
      <main class={`split${isDetail ? " onepage" : ""}${isMiddle ? " over" : ""}${isBeside ? " beside" : ""}`} style={isBeside ? { gridTemplateColumns: `${width}px 1px minmax(0,1fr)` } : {}}>
        {isDetail && <h1 class="sr">{run.agent}: one step</h1>}
        {isBeside && operator}
        {!isDetail && (
          <section class="left" aria-label="Steps">
            <Filter listed={listed} field={field} />
            {listed.rows.length === 0 ? (
              <p class="middle">{listed.filter || listed.errorsOnly ? "No step matches. Press c to see all of them." : "Nothing has happened yet."}</p>
            ) : (
              <TreeView
                tree={tree}
                rows={listed.rows}
                index={listed.index}
                selected={selection.key}
                requests={requests}
                missed={missed}
                scale={scale}
                isNarrow={isNarrow}
                choose={(row) => (row.hidden ? listed.showHidden(row) : selection.pick(row.key, false))}
                toggle={listed.toggle}
              />
            )}
          </section>
        )}
        {isBeside && <div class="splitter" onPointerDown={drag} role="separator" aria-orientation="vertical" aria-label="Width of the steps" aria-valuenow={Math.round(width)} />}
        {(!isNarrow || isDetail) && (!isMiddle || wanted !== null) && (
          <section class="details" aria-label="What is selected">
            {(isDetail || isMiddle) && (
              <button type="button" class="plain backrow" onClick={back}>
                <Icon shape="back" /> Steps
              </button>
            )}
            {isLive && !isNarrow && <Follow selection={selection} />}
            {selection.step ? (
              <Details recording={recording} tree={tree} step={selection.step} requests={requests} tab={tab} tabs={tabs} route={route} choose={(key) => selection.pick(key, false)} />
            ) : (
              <p class="middle">{wanted !== null && recording.isWhole ? "This run has no such step. Press c, or choose one at the left." : "Choose a step."}</p>
            )}
          </section>
        )}
      </main>
      {!isBeside && operator}
    </>
  );
}

function Filter({ listed, field }: { listed: Listed; field: { current: HTMLInputElement | null } }) {
  const { filter, setFilter, errorsOnly, setErrorsOnly } = listed;
  return (
    <div class="filter">
      <Icon shape="search" />
      <input ref={field} value={filter} placeholder="Filter steps" aria-label="Filter steps" onInput={(event) => setFilter(event.currentTarget.value)} />
      {(filter || errorsOnly) && (
        <span class="found" role="status">
          {listed.found} of {listed.all}
        </span>
      )}
      <Key>/</Key>
      <button type="button" class={`plain${errorsOnly ? " on" : ""}`} aria-pressed={errorsOnly} onClick={() => setErrorsOnly(!errorsOnly)}>
        <Icon shape="filter" /> Errors only
      </button>
      <Key>c</Key>
    </div>
  );
}

function Follow({ selection: { follows, follow, fresh } }: { selection: Selection }) {
  return (
    <span class="follow">
      {follows ? (
        <span class="chip accent">
          <StateIcon state="live" /> follows
        </span>
      ) : (
        <button type="button" class="chip accent" onClick={follow}>
          {fresh > 0 ? `${fresh} new, follow` : "follow"}
        </button>
      )}
    </span>
  );
}

/** The iterations whose request read less from the cache than the one before it had left there. */
function missedOf(tree: Tree, requests: readonly Sent[], byStep: Map<string, Sent>): Set<string> {
  const keys = new Map([...byStep].map(([key, sent]) => [sent.n, key]));
  const before = new Map<string, ReturnType<typeof told>>();
  const found = new Set<string>();
  for (const sent of requests) {
    const path = sent.path.join("/");
    const key = keys.get(sent.n);
    const used = told(sent) ?? (key ? (tree.steps.get(key)?.used ?? null) : null);
    if (key && used && isMissed(before.get(path) ?? null, used)) found.add(key);
    if (used) before.set(path, used);
  }
  return found;
}

function newestOf(tree: Tree): Step | null {
  let newest: Step | null = null;
  for (const run of tree.runs) {
    const step = run.nowIteration;
    if (step?.isLive && (!newest || step.start >= newest.start)) newest = step;
  }
  return newest ?? selectedAtFirst(tree);
}

/** Wider where there are runs inside of runs, and where somebody looks on. */
function defaultSplit(rows: readonly Row[], isLive: boolean): number {
  const hasRuns = rows.some((row) => row.step.kind === "run" || childrenOf(row.step).some((each) => each.kind === "run"));
  const most = Math.max(320, innerWidth - 520);
  return Math.min(most, hasRuns ? (innerWidth >= 1400 ? 800 : 640) : isLive ? 640 : innerWidth >= 1400 ? 400 : 340);
}
