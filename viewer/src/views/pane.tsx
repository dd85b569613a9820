// What the panes at the right share: what they are given, an event in full, and the result of a call.

import { useState } from "preact/hooks";
import type { Happened, Json, Sent } from "../api";
import { parsed } from "../client";
import { plural } from "../logic/format";
import type { Step, Tree } from "../logic/tree";
import { isCut, isObject, list, text } from "../logic/values";
import type { Recording } from "../recording";
import { JsonView, LongText, useAsked } from "./parts";

export interface PaneGiven {
  recording: Recording;
  tree: Tree;
  step: Step;
  requests: Map<string, Sent>;
  choose: (key: string) => void;
}

/** An event with all of its texts, once they are here; until then, and where they cannot be had, what there is of it. */
export function useEntire(recording: Recording, event: Happened | null): Happened | null {
  const { value } = useAsked(() => (event && isCut(event) ? recording.entire(event) : null), event?.n, recording);
  return value ?? event;
}

/** What a tool gave: JSON as JSON, text as text. */
export function ResultView({ value, isError }: { value: Json | undefined; isError: boolean }) {
  if (Array.isArray(value)) {
    return (
      <>
        {list(value).map((each, n) => (
          <ResultView key={n} value={isObject(each) && typeof each["text"] === "string" ? each["text"] : each} isError={isError} />
        ))}
      </>
    );
  }
  const json = isObject(value) ? undefined : parsed(value);
  if (json !== undefined) return <JsonView value={json} />;
  return <TextResult value={text(value)} isError={isError} />;
}

const REMARK = /^\[.*\]$/;
const NUMBERED = /^(\s*\d+)(\t| {2}|: ?|[|] )(.*)$/;

function TextResult({ value, isError }: { value: string; isError: boolean }) {
  const [all, set] = useState(false);
  if (value.length > 60_000 && !all) {
    return (
      <pre class={`text${isError ? " bad" : ""}`}>
        <LongText text={value} />
      </pre>
    );
  }
  const lines = value.split("\n");
  const most = 400;
  return (
    <pre class={`text${isError ? " bad" : ""}`}>
      {lines.slice(0, all ? lines.length : most).map((line, n) => {
        const found = NUMBERED.exec(line);
        const isRemark = n > 0 && REMARK.test(line);
        return (
          <span class={isRemark ? "remark" : undefined} key={n}>
            {found ? (
              <>
                <span class="remark">{`${found[1] ?? ""}  `}</span>
                {found[3]}
              </>
            ) : (
              line
            )}
            {"\n"}
          </span>
        );
      })}
      {lines.length > most && !all && (
        <button type="button" class="fold" onClick={() => set(true)}>
          {plural(lines.length - most, "more line")}
        </button>
      )}
    </pre>
  );
}
