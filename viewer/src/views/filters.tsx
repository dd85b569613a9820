// What the list of runs is filtered by, and what to do where nothing is found.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Run, Runs } from "../api";
import { get, query } from "../client";
import { FILTERS, wanted } from "../listing";
import { go, goOn, type Route } from "../route";
import { Icon, Key, useAsked } from "./parts";

const STATUSES = ["running", "waiting", "held", "blocked", "ready", "done", "failed", "cancelled", "left", "died"];
const DAYS: [string, string][] = [["1", "today"], ["7", "7 days"], ["14", "14 days"], ["30", "30 days"]];
const COSTS = ["0.01", "0.05", "0.1", "1"];

interface Given {
  route: Route;
  /** The runs that are listed, whose agents can be chosen. */
  runs: Run[];
  isNarrow: boolean;
  field: { current: HTMLInputElement | null };
  /** How many runs there are. */
  children: ComponentChildren;
}

export function Filters({ route, runs, isNarrow, field, children }: Given) {
  const [isFiltering, setFiltering] = useState(false);
  const isOverOne = Number(route["attempts"]) > 0;
  const agents = [...new Set(runs.map((run) => run.agent))].sort();
  const chosen = route["agent"] ?? "";
  return (
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
      {(!isNarrow || isFiltering) && (
        <>
          <Choice name="Status" at={route["status"] ?? ""} choices={STATUSES.map((each) => [each, each])} choose={(status) => goOn({ status }, true)} />
          <Choice name="Agent" at={chosen} choices={[...new Set([...agents, ...(chosen ? [chosen] : [])])].map((each) => [each, each])} choose={(agent) => goOn({ agent }, true)} />
          <Choice name="Since" at={route["since"] ?? ""} choices={DAYS} choose={(since) => goOn({ since }, true)} />
          <Choice name="Cost over" at={route["cost"] ?? ""} choices={COSTS.map((each) => [each, `$${Number(each).toFixed(2)}`])} choose={(cost) => goOn({ cost }, true)} />
          <button type="button" class={`choice${isOverOne ? " on" : ""}`} aria-pressed={isOverOne} onClick={() => goOn({ attempts: isOverOne ? "" : "1" }, true)}>
            Attempts over 1
          </button>
        </>
      )}
      <span class="spacer" />
      <span class="quiet wideonly">{children}</span>
    </div>
  );
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

const NAMES: Record<string, string> = { agent: "agent", status: "status", since: "time", cost: "cost", q: "search", tool: "tool", attempts: "attempts" };

export function NoMatch({ route }: { route: Route }) {
  const given = FILTERS.filter((name) => route[name]);
  const read = async () => {
    const told: [string, number][] = [];
    for (const name of given) {
      const { runs } = await get<Runs>(`api/runs${query({ ...wanted({ ...route, [name]: "" }), limit: 100 })}`);
      told.push([name, runs.length]);
    }
    return told.filter(([, n]) => n > 0).toSorted(([, one], [, other]) => other - one)[0] ?? null;
  };
  const { value: best } = useAsked(read, given.map((name) => `${name}=${route[name] ?? ""}`).join("&")); // it is only a hint
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
