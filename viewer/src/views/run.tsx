// One run: its head, the tree at the left, and at the right what is selected.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Sent } from "../api";
import { isMissed, told } from "../logic/cache";
import { allowedMoney, count, duration, exact, money, percent, plural, shortId, clock, utc } from "../logic/format";
import { requestsByStep } from "../logic/requests";
import { childrenOf, isFailing, reveal, type Row, rowsOf, selectedAtFirst } from "../logic/rows";
import { stateOf, type Step, type Tree } from "../logic/tree";
import { number, sentTokens } from "../logic/values";
import { embedded } from "../offline";
import { type Recording, useRecording } from "../recording";
import { goOn, type Route } from "../route";
import { Conversation } from "./conversation";
import { Details, tabsOf } from "./details";
import { Operator } from "./operator";
import { announce, copy, Figure, Icon, Key, Loading, Problem, StateIcon, To, useKeys, useNarrow } from "./parts";
import { HelpButton, LinkButton, Where } from "./top";
import { TreeView } from "./tree";

export function RunPage({ route }: { route: Route }) {
  const recording = useRecording(route["run"] ?? "");
  const { run, tree, error } = recording;
  useLayoutEffect(() => {
    document.title = run ? `${run.agent} · journeyman` : "journeyman";
  }, [run?.agent]);
  const top = (
    <header class="top">
      <Where name={run?.agent ?? "…"}>
        <span class="mono id" title={recording.id}>
          {shortId(recording.id)}
        </span>
      </Where>
      <span class="actions">
        {run?.status === "live" && (
          <span class="chip accent">
            <StateIcon state="live" /> live
          </span>
        )}
        {route["view"] === "conversation" ? (
          <button type="button" class="plain" onClick={() => goOn({ view: "" })}>
            Steps
          </button>
        ) : (
          <button type="button" class="plain" onClick={() => goOn({ view: "conversation" })}>
            Conversation
          </button>
        )}
        {!embedded && <ExportMenu id={recording.id} />}
        <LinkButton />
        <HelpButton />
      </span>
    </header>
  );
  if (error && !tree) {
    return (
      <div class="page">
        {top}
        <main class="middle">
          <h1 class="sr">This run cannot be shown</h1>
          <Problem error={error} again={() => location.reload()} />
          <p>
            <To to={{}}>All runs</To>
          </p>
        </main>
      </div>
    );
  }
  if (!run || !tree) {
    return (
      <div class="page">
        {top}
        <main>
          <h1 class="sr">Loading a run</h1>
          <Loading />
        </main>
      </div>
    );
  }
  return (
    <div class={`page run${recording.lost ? " stale" : ""}`}>
      {top}
      <Notices recording={recording} />
      {route["view"] === "conversation" ? <Conversation recording={recording} tree={tree} /> : <Steps recording={recording} tree={tree} route={route} />}
    </div>
  );
}

function ExportMenu({ id }: { id: string }) {
  const kinds: [string, string][] = [
    ["jsonl", "JSON lines"],
    ["markdown", "Markdown"],
    ["html", "One HTML file"],
    ["cassette", "Cassette for tests"],
  ];
  return (
    <details class="menu wideonly">
      <summary>Export</summary>
      <div class="menulist">
        {kinds.map(([as, name]) => (
          <a key={as} href={`api/runs/${encodeURIComponent(id)}/export?as=${as}`} download>
            {name}
          </a>
        ))}
      </div>
    </details>
  );
}

function Notices({ recording }: { recording: Recording }) {
  const { run, lost, gone } = recording;
  return (
    <>
      {gone && <Problem error={gone} again={() => recording.again()} />}
      {lost !== null && (
        <div class="notice sunk" role="status">
          <StateIcon state="cancelled" />
          <p>
            <b>The viewer's process does not answer.</b> What you see is as of {clock(lost)}. Trying again; nothing is lost, the run goes on.
          </p>
          <button type="button" onClick={() => recording.again()}>
            Try now
          </button>
        </div>
      )}
      {run !== null && run.dropped > 0 && (
        <div class="notice warn" role="note">
          <p>
            <b>{plural(run.dropped, "progress report was", "progress reports were")} not recorded</b>: the disk was slower than the run. Messages, calls and endings are complete.
          </p>
        </div>
      )}
      {run?.why && (
        <div class="notice warn" role="note">
          <p>
            <b>Recording ended before the run did:</b> {run.why}
          </p>
        </div>
      )}
      {run !== null && !run.has_content && (
        <div class="notice sunk" role="note">
          <p>
            <b>Contents were not recorded</b> (<code>content=False</code>). Sizes and digests are shown instead.
          </p>
        </div>
      )}
    </>
  );
}

function Head({ tree, recording, now }: { tree: Tree; recording: Recording; now: number }) {
  const run = recording.run ?? tree.recording;
  const waits = tree.waits;
  const main = tree.runs.find((each) => each.path.length === 1) ?? null;
  const sent = sentTokens(run.usage);
  const isLive = run.status === "live";
  const outermost = tree.runs.filter((each) => each.path.length === 1);
  const own = outermost.reduce((all, each) => all + each.used.requests, 0);
  /** What is allowed, while it matters. Not all the time of a durable run counts. */
  const most = (name: string) => (isLive && outermost.length === 1 && (name !== "seconds" || run.kind !== "durable") ? number(outermost[0]?.limits[name]) : null);
  const title = run.input || main?.input || `${run.agent}, without input`;
  const attempt = main?.nowAttempt?.attempt ?? 0;
  const iteration = main?.nowIteration?.iteration ?? 0;
  return (
    <section class="head" aria-label="This run">
      <h1>
        <StateIcon state={stateOf(run.status === "left" && run.code ? "failure" : run.status, waits !== null && isLive)} isGood={run.status === "success"} />
        <span>{title}</span>
      </h1>
      <p class="figures">
        {isLive ? (
          <Figure name="state">
            <span class={waits ? "wait" : "accent"}>{waits?.waiting ? `waits for you, ${duration(now - waits.waiting.event.at)}` : "live"}</span>
          </Figure>
        ) : (
          <Figure name="ended">
            <span class={`mono ${run.code ? "bad" : run.status === "success" ? "good" : ""}`}>{run.code ?? ({ success: "SUCCESS", left: "left", died: "died", cancelled: "cancelled" }[run.status as string] ?? run.status)}</span>
          </Figure>
        )}
        {run.kind === "chat" ? (
          <Figure name="turns">{count(tree.root.children.filter((each) => each.kind === "turn").length)}</Figure>
        ) : (
          <Figure name="attempt">{`${run.attempts} of ${main?.maxAttempts ?? "?"}`}</Figure>
        )}
        {isLive && iteration > 0 ? (
          <Figure name="iteration">{`${iteration} of ${main?.maxIterations ?? "?"}${attempt > 1 ? `, attempt ${attempt}` : ""}`}</Figure>
        ) : (
          <Figure name="iterations">
            {count(run.iterations)} {own !== run.iterations && own > 0 && <span class="name">{own} its own</span>}
          </Figure>
        )}
        {run.children > 0 ? <Figure name="children">{count(run.children)}</Figure> : <Figure name="calls">{count(run.calls)}</Figure>}
        <Figure name="in" title={exact(sent)}>
          {sent < 100_000 ? exact(sent) : count(sent)}
        </Figure>
        <Figure name="cached">{percent(run.usage.cache_read_tokens, sent)}</Figure>
        <Figure name="out" title={exact(run.usage.output_tokens)}>
          {run.usage.output_tokens < 100_000 ? exact(run.usage.output_tokens) : count(run.usage.output_tokens)}
        </Figure>
        <Figure name="cost">
          {money(run.usage.cost)} {most("cost") !== null && <span class="name">of {allowedMoney(most("cost"))}</span>}
        </Figure>
        <Figure name={isLive ? "for" : "took"}>
          {duration((isLive ? now : (run.ended ?? run.seen)) - run.started)} {most("seconds") !== null && <span class="name">of {duration(most("seconds"))}</span>}
        </Figure>
        <Figure name="began" title={utc(run.started)}>
          {clock(run.started)}
        </Figure>
      </p>
    </section>
  );
}

function useNow(isLive: boolean): number {
  const [now, set] = useState(Date.now() / 1000);
  useEffect(() => {
    if (!isLive) return;
    const timer = window.setInterval(() => set(Date.now() / 1000), 250);
    return () => window.clearInterval(timer);
  }, [isLive]);
  return now;
}

const SPLIT = "journeyman.split";

function Steps({ recording, tree, route }: { recording: Recording; tree: Tree; route: Route }) {
  const run = recording.run ?? tree.recording;
  const isLive = run.status === "live";
  const now = useNow(isLive);
  const isNarrow = useNarrow();
  const isMiddle = useNarrow(1100) && !isNarrow;
  const isBeside = !isNarrow && !isMiddle;
  const [opened, setOpened] = useState(() => new Map<string, boolean>());
  const [filter, setFilter] = useState("");
  const [errorsOnly, setErrorsOnly] = useState(false);
  const [split, setSplit] = useState(() => Number(localStorage.getItem(SPLIT)) || 0);
  const [chosen, setChosen] = useState<string | null>(null);
  const [follows, setFollows] = useState(isLive && !route["at"]);
  const seen = useRef(0);
  const field = useRef<HTMLInputElement>(null);

  const wanted = route["at"] ?? null;
  const first = useMemo(() => (wanted === null && !follows ? selectedAtFirst(tree) : null), [tree.version, wanted, follows]);
  const newest = follows ? (tree.waits ?? newestOf(tree)) : null;
  const selectedKey = chosen ?? wanted ?? newest?.key ?? first?.key ?? "";
  const selected = tree.steps.get(selectedKey) ?? (wanted === null ? first : null);
  useEffect(() => setChosen(null), [wanted]);
  useEffect(() => {
    if (follows) seen.current = tree.events;
  }, [follows, tree.version]);

  // A link leads to a step that may be closed: its way is opened once.
  const revealed = useRef("");
  useEffect(() => {
    const step = tree.steps.get(selectedKey);
    if (!step || revealed.current === selectedKey) return;
    revealed.current = selectedKey;
    const found = rowsOf(tree, { opened, filter: "", errorsOnly: false }).rows;
    if (!found.some((row) => row.key === selectedKey || row.only?.key === selectedKey)) {
      const next = new Map(opened);
      reveal(step, next);
      setOpened(next);
    }
  }, [selectedKey, tree.version]);

  const { rows, found, all } = useMemo(() => rowsOf(tree, { opened, filter, errorsOnly }), [tree.version, opened, filter, errorsOnly]);
  const requests = useMemo(() => requestsByStep(tree, recording.requests), [tree.runs.length, recording.requests]);
  const missed = useMemo(() => missedOf(tree, recording.requests, requests), [requests, recording.isWhole]);
  const lastAt = Math.max(run.ended ?? 0, run.seen, run.started + 0.001);
  const scale = { start: run.started, end: isLive ? Math.max(now, lastAt) * 1 + (Math.max(now, lastAt) - run.started) * 0.06 : lastAt, now: isLive ? Math.max(now, lastAt) : null };

  const pick = (key: string, replace = true) => {
    setFollows(false);
    setChosen(key);
    goOn({ at: key }, replace && route["at"] !== undefined);
  };
  const choose = (row: Row) => {
    if (row.hidden) setOpened(new Map(opened).set(`${row.step.key}/more`, true));
    else pick(row.key, false);
  };
  const toggle = (row: Row) => setOpened(new Map(opened).set(row.step.key, !row.isOpen));
  const index = rows.findIndex((row) => row.key === selectedKey || (row.only?.key === selectedKey && !row.isOpen));
  const tabs = selected ? tabsOf(selected, requests) : [];
  const tab = tabs.find((each) => each.id === route["tab"])?.id ?? tabs[0]?.id ?? "";
  const waitsFor = tree.waits?.key ?? "";
  const [dismissed, setDismissed] = useState("");
  const isDetail = isNarrow && (wanted !== null || (waitsFor !== "" && isLive && dismissed !== waitsFor));
  const back = () => {
    setDismissed(waitsFor);
    goOn({ at: "" });
  };

  useEffect(() => {
    if (tree.waits) announce(`${tree.waits.title} waits for you`, true);
  }, [tree.waits?.key]);
  useEffect(() => {
    if (isLive) announce(plural(run.iterations, "iteration"));
  }, [run.iterations]);

  const step = (by: number, test: (row: Row) => boolean = () => true) => {
    for (let at = Math.max(index, by > 0 ? -1 : 0) + by; at >= 0 && at < rows.length; at += by) {
      const row = rows[at];
      if (row && test(row)) {
        if (row.hidden) choose(row);
        else pick(row.key);
        return true;
      }
    }
    return false;
  };

  useKeys(
    (key, event) => {
      const row = rows[index];
      const target = event.target as HTMLElement;
      const isInside = target.closest(".details") !== null;
      if (isInside && (key.startsWith("Arrow") || key === "Enter")) return false;
      switch (key) {
        case "j":
        case "ArrowDown":
          return step(1);
        case "k":
        case "ArrowUp":
          return step(-1);
        case "l":
        case "ArrowRight":
          if (row?.canOpen && !row.isOpen) toggle(row);
          else if (row?.isOpen) step(1);
          return true;
        case "h":
        case "ArrowLeft": {
          if (row?.isOpen && row.canOpen) toggle(row);
          else if (row) {
            for (let at = index - 1; at >= 0; at -= 1) {
              const above = rows[at];
              if (above && above.level < row.level) {
                pick(above.key);
                break;
              }
            }
          }
          return true;
        }
        case "e":
          return step(1, (each) => isFailing(each.step));
        case "E":
          return step(-1, (each) => isFailing(each.step));
        case "/":
          field.current?.focus();
          return true;
        case "c":
          setOpened(new Map());
          setFilter("");
          setErrorsOnly(false);
          return true;
        case "d":
          if (tabs.some((each) => each.id === "request")) goOn({ tab: "request", as: "changes" }, true);
          return true;
        case "u":
          void copy(location.href, "The link");
          return true;
        case "f":
          if (isLive) {
            setFollows(true);
            setChosen(null);
            goOn({ at: "" }, true);
          }
          return true;
        case "[":
        case "]": {
          const width = Math.max(280, (split || defaultSplit(rows, isLive)) + (key === "]" ? 40 : -40));
          localStorage.setItem(SPLIT, String(width));
          setSplit(width);
          return true;
        }
        case "Enter":
          (document.querySelector(".details [role=tab][aria-selected=true]") as HTMLElement | null)?.focus();
          return false;
        case "Escape":
          if (target instanceof HTMLInputElement || isInside) {
            target.blur();
            (document.querySelector(".tbody") as HTMLElement | null)?.focus();
          } else if (isDetail || isMiddle) back();
          else if (filter) setFilter("");
          return true;
        default: {
          const nth = tabs[Number(key) - 1];
          if (/^[1-5]$/.test(key) && nth) {
            goOn({ tab: nth.id }, true);
            return true;
          }
          return false;
        }
      }
    },
  );

  const width = split || defaultSplit(rows, isLive);
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
  const fresh = tree.events - seen.current;
  return (
    <>
      {!isDetail && <Head tree={tree} recording={recording} now={now} />}
      <main class={`split${isDetail ? " onepage" : ""}${isMiddle ? " over" : ""}${isBeside ? " beside" : ""}`} style={isNarrow || isMiddle ? {} : { gridTemplateColumns: `${width}px 1px minmax(0,1fr)` }}>
        {isDetail && <h1 class="sr">{run.agent}: one step</h1>}
        {isLive && !recording.isReadOnly && isBeside && <Operator recording={recording} tree={tree} isNarrow={false} />}
        {!isDetail && (
          <section class="left" aria-label="Steps">
            <div class="filter">
              <Icon shape="search" />
              <input ref={field} value={filter} placeholder="Filter steps" aria-label="Filter steps" onInput={(event) => setFilter(event.currentTarget.value)} />
              {(filter || errorsOnly) && (
                <span class="found" role="status">
                  {found} of {all}
                </span>
              )}
              <Key>/</Key>
              <button type="button" class={`plain${errorsOnly ? " on" : ""}`} aria-pressed={errorsOnly} onClick={() => setErrorsOnly(!errorsOnly)}>
                <Icon shape="filter" /> Errors only
              </button>
              <Key>c</Key>
            </div>
            {rows.length === 0 ? (
              <p class="middle">{filter || errorsOnly ? "No step matches. Press c to see all of them." : "Nothing has happened yet."}</p>
            ) : (
              <TreeView
                tree={tree}
                rows={rows}
                selected={selectedKey}
                requests={requests}
                missed={missed}
                scale={scale}
                isNarrow={isNarrow}
                choose={choose}
                toggle={toggle}
                version={tree.version}
              />
            )}
          </section>
        )}
        {!isNarrow && !isMiddle && <div class="splitter" onPointerDown={drag} role="separator" aria-orientation="vertical" aria-label="Width of the steps" aria-valuenow={Math.round(width)} />}
        {(!isNarrow || isDetail) && (!isMiddle || wanted !== null) && (
          <section class="details" aria-label="What is selected">
            {(isDetail || isMiddle) && (
              <button type="button" class="plain backrow" onClick={back}>
                <Icon shape="back" /> Steps
              </button>
            )}
            {isLive && !isNarrow && (
              <span class="follow">
                {follows ? (
                  <span class="chip accent">
                    <StateIcon state="live" /> follows
                  </span>
                ) : (
                  <button type="button" class="chip accent" onClick={() => (setFollows(true), setChosen(null), goOn({ at: "" }, true))}>
                    {fresh > 0 ? `${fresh} new, follow` : "follow"}
                  </button>
                )}
              </span>
            )}
            {selected ? (
              <Details recording={recording} tree={tree} step={selected} requests={requests} tab={tab} tabs={tabs} route={route} choose={(key) => pick(key, false)} />
            ) : wanted !== null && recording.isWhole ? (
              <p class="middle">This run has no such step. Press c, or choose one at the left.</p>
            ) : (
              <p class="middle">Choose a step.</p>
            )}
          </section>
        )}
      </main>
      {isLive && !recording.isReadOnly && !isBeside && <Operator recording={recording} tree={tree} isNarrow={isNarrow} />}
    </>
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
