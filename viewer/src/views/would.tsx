// What a call would do, before it is allowed: a diff for what edits, a command line for what runs, else its arguments.

import type { Facts } from "../api";
import { lines } from "../logic/diff";
import { plural } from "../logic/format";
import { changeOf, isEvery, isSamePath, type Known, knownAfter } from "../logic/known";
import type { Step } from "../logic/tree";
import { object, text } from "../logic/values";
import type { Recording } from "../recording";
import { DiffLine, JsonView, useAsked } from "./parts";

const TOOLS = /^(read|edit|write)$/;
const MOST_DEEDS = 50;
const MOST_LINES = 200;
const SCROLLS = { tabIndex: 0, role: "group", "aria-label": "What would happen" } as const;

/** What a run knows of a file by its own calls; nothing, where they cannot be read: a change is shown without what is around it. */
function useKnown(recording: Recording, step: Step, file: string): Known | null {
  const read = () => {
    const path = step.run.path.join("/");
    const runs = file && recording.tree ? recording.tree.runs.filter((run) => run.path.join("/") === path) : [];
    const calls = runs.flatMap((run) => [...run.calls.values()]).flatMap(({ title, called, finished }) => {
      if (!called || !finished || !TOOLS.test(title) || finished["is_error"] === true) return [];
      return isSamePath(text(object(called["tool_input"])["path"]), file) ? [{ title, called, finished }] : [];
    });
    const deeds = calls.slice(-MOST_DEEDS).map(async ({ title, called, finished }) => {
      const [asked, ended] = await Promise.all([recording.entire(called), recording.entire(finished)]);
      return { tool: title, args: object(asked["tool_input"]), result: text(ended["tool_result"]) };
    });
    return Promise.all(deeds).then(knownAfter);
  };
  const { value, error } = useAsked(read, recording, step.key, file);
  return value ?? (error ? new Map() : null);
}

interface WouldGiven {
  recording: Recording;
  step: Step;
  name: string;
  args: Facts;
}

export function WouldHappen({ recording, step, name, args }: WouldGiven) {
  const before = args["old"] ?? args["old_text"] ?? args["old_string"];
  const after = args["new"] ?? args["new_text"] ?? args["new_string"];
  const isEdit = typeof before === "string" && typeof after === "string";
  const known = useKnown(recording, step, isEdit ? text(args["path"] ?? args["file"]) : "");
  if (isEdit) return <Edit known={known} before={before} after={after} isAll={isEvery(args)} />;
  if (name === "write" && typeof args["content"] === "string") {
    return (
      <div class="would" {...SCROLLS}>
        {lines("", args["content"]).filter((line) => line.sign === "+").slice(0, MOST_LINES).map((line, n) => (
          <DiffLine line={line} key={n} isNumbered />
        ))}
      </div>
    );
  }
  if (typeof args["command"] === "string") {
    return (
      <pre class="would command" {...SCROLLS}>
        <span class="quiet">$ </span>
        {args["command"]}
      </pre>
    );
  }
  return (
    <div class="would" {...SCROLLS}>
      <JsonView value={args} />
    </div>
  );
}

function Edit({ known, before, after, isAll }: { known: Known | null; before: string; after: string; isAll: boolean }) {
  const change = changeOf(known ?? new Map(), before, after, isAll);
  if (!change) {
    return (
      <div class="would" {...SCROLLS}>
        {lines(before, after).map((line, n) => (
          <DiffLine line={line} key={n} />
        ))}
        {known && <p class="quiet">Where this is in the file could not be told.</p>}
      </div>
    );
  }
  return (
    <div class="would" {...SCROLLS}>
      {change.places.map((place, at) => (
        <div key={at} class="place">
          {place.map((line, n) => (
            <DiffLine line={line} key={n} isNumbered />
          ))}
        </div>
      ))}
      {change.others > 0 && (
        <p class="quiet">
          And at {plural(change.others, "other place")}{isAll ? "" : ": it must be unique"}.
        </p>
      )}
    </div>
  );
}
