// What today's runs came to, and what each of the last days cost.

import { useEffect, useState } from "preact/hooks";
import type { Day, Days, Run, Store } from "../api";
import { get } from "../client";
import { count, exact, money, plural } from "../logic/format";
import { goesOn } from "../logic/tree";

/** The store itself and its last days; asked for anew when runs were forgotten, and only once the rows are here. */
export function useStore(isHere: boolean, forgotten: number): { store: Store | null; days: Day[] } {
  const [store, setStore] = useState<Store | null>(null);
  const [days, setDays] = useState<Day[]>([]);
  useEffect(() => {
    if (!isHere) return;
    get<Store>("api/store").then(setStore).catch(() => undefined); // what fails is told by the list
    get<Days>("api/days?days=30").then((told) => setDays(told.days)).catch(() => undefined);
  }, [isHere, forgotten]);
  return { store, days };
}

export function Summary({ runs, days, isNarrow }: { runs: Run[]; days: Day[]; isNarrow: boolean }) {
  const today = Math.floor(Date.now() / 86_400_000) * 86_400;
  const day = days.find((each) => each.day === today) ?? { runs: 0, failed: 0, cost: 0 };
  const inSpan = days.filter((each) => each.day > today - 14 * 86_400).reduce((all, each) => all + each.runs, 0);
  const live = runs.filter((run) => goesOn(run)).length;
  const waiting = runs.filter((run) => run.waits).length;
  return (
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
