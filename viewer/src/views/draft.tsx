// A draft: what the model saw of it beside the draft before, and what the checks said when it was handed in.

import { useMemo, useState } from "preact/hooks";
import { beside, type Line, lines } from "../logic/diff";
import { duration, plural } from "../logic/format";
import { split, underlined } from "../logic/paths";
import type { Draft, Tree, Verdict } from "../logic/tree";
import type { Happened } from "../api";
import { object, text, wordsOf } from "../logic/values";
import { type PaneGiven, useEntire } from "./pane";
import { StateIcon } from "./parts";

export function DraftPane({ step, draft, recording, tree }: PaneGiven & { draft: Draft }) {
  const before = step.run.drafts[draft.number - 2] ?? null;
  const finished = useEntire(recording, draft.call.finished);
  const finishedBefore = useEntire(recording, before?.call.finished ?? null);
  const called = useEntire(recording, draft.call.called);
  const said = useEntire(recording, draft.call.parent?.said ?? null);
  const words = said ? wordsOf(said).join(" ") : "";
  const input = object(called?.["tool_input"]);
  const preview = previewOf(finished, draft, input);
  const previewBefore = before ? previewOf(finishedBefore, before, object(before.call.called?.["tool_input"])) : null;
  const verdict = draft.verdict;
  const feedback = verdict?.feedback ?? "";
  const paths = useMemo(() => split(feedback, input).flatMap((part) => (part.path ? [part.path] : [])), [feedback, called?.n, finished]);
  const rows = useMemo(() => (previewBefore === null ? null : beside(lines(previewBefore, preview))), [preview, previewBefore]);
  const inRows = rows ? { "--rows": rows.length + 1 } : {};
  const [lit, setLit] = useState("");
  const changed = rows ? rows.filter((row) => row.before !== row.after).length : 0;
  const handedBefore = before ? (before.verdict ? "rejected" : "never handed in") : "";
  return (
    <>
      {words && <p class="quote">“{words}”</p>}
      <div class={`drafts ${rows ? "two" : "one"}`}>
        {rows && before && (
          <section class="draft" aria-label={`Draft ${before.number}`} style={inRows}>
            <header>
              <b class="light">Draft {before.number}</b>{" "}
              <span class="quiet">
                iteration {before.call.iteration}, {handedBefore}
              </span>
            </header>
            <div class="lines" tabIndex={0} role="group" aria-label={`Text of draft ${before.number}`}>
              {rows.map((row, n) => (
                <PreviewLine key={n} line={row.before} isSame={row.before === row.after} side="removed" draft={null} paths={[]} lit="" />
              ))}
            </div>
          </section>
        )}
        <section class="draft" aria-label={`Draft ${draft.number}`} style={inRows}>
          <header>
            <b>Draft {draft.number}</b> <span class="quiet">what the model saw</span>
            <span class="spacer" />
            {rows && <span class="quiet">{plural(changed, "line")} changed</span>}
          </header>
          <div class="lines" tabIndex={0} role="group" aria-label={`Text of draft ${draft.number}`}>
            {rows
              ? rows.map((row, n) => <PreviewLine key={n} line={row.after} isSame={row.before === row.after} side="added" draft={input} paths={paths} lit={lit} />)
              : preview.split("\n").map((line, n) => (
                  <PreviewLine key={n} line={{ sign: " ", text: line, words: null, before: null, after: n + 1 }} isSame side="added" draft={input} paths={paths} lit={lit} />
                ))}
          </div>
        </section>
      </div>
      {verdict ? <VerdictView tree={tree} verdict={verdict} draft={input} light={setLit} /> : <p class="quiet">This draft was not handed in.</p>}
    </>
  );
}

/** What was shown of a draft: the preview, or the draft itself where it was handed in at once. */
function previewOf(finished: Happened | null, draft: Draft, input: object): string {
  const told = finished ? text(finished["tool_result"]) : "";
  if (draft.call.verdict || !told) return JSON.stringify(input, null, 2);
  return told;
}

/** The longest list of layers that any verdict has: those that were not asked are known from it. */
function allLayers(tree: Tree): string[] {
  const lists = tree.runs.flatMap((run) => run.attempts.map(({ verdict }) => verdict?.layers.map((layer) => layer.name) ?? []));
  return lists.reduce((longest, names) => (names.length > longest.length ? names : longest), []);
}

interface LineGiven {
  line: Line | null;
  isSame: boolean;
  side: "added" | "removed";
  draft: object | null;
  paths: string[];
  lit: string;
}

function PreviewLine({ line, isSame, side, draft, paths, lit }: LineGiven) {
  if (!line) return <div class="pline absent"> </div>;
  const under = (told: string) =>
    draft && paths.length ? underlined(told, draft as Record<string, never>, paths).map((part, n) => (part.path ? <u key={n} class={part.path === lit ? "lit" : ""}>{part.text}</u> : part.text)) : told;
  const isAlone = !isSame && !line.words;
  return (
    <div class={`pline${isSame ? "" : isAlone ? ` ${side}` : " changed"}`}>
      {line.words ? line.words.map((word, n) => (word.isMarked ? <mark class={side} key={n}>{under(word.text)}</mark> : <span key={n}>{under(word.text)}</span>)) : line.text === "" ? " " : under(line.text)}
    </div>
  );
}

export function VerdictView({ tree, verdict, draft, light }: { tree: Tree; verdict: Verdict; draft: object; light?: (path: string) => void }) {
  const feedback = text(verdict.call?.finished?.["tool_result"]) || verdict.feedback;
  const asked = new Map(verdict.layers.map((layer) => [layer.name, layer]));
  const names = [...new Set([...verdict.layers.map((layer) => layer.name), ...allLayers(tree)])];
  const passed = verdict.layers.every((layer) => layer.passed === true);
  return (
    <section class="verdict" aria-label="Verdict">
      <h3>
        Verdict <span>on handing in, iteration {verdict.iteration}</span>
      </h3>
      <div class="strip" tabIndex={0} role="group" aria-label="Checks, in the order in which they were asked">
        {names.map((name) => {
          const layer = asked.get(name);
          const look = !layer ? "notasked" : layer.passed === false ? "failed" : layer.passed ? "passed" : "live";
          return (
            <div class={`layer ${look}`} key={name} title={layer?.description}>
              {layer ? <StateIcon state={layer.passed === false ? "failed" : layer.passed ? "done" : "live"} isRejected /> : <span class="dash" role="img" aria-label="not asked">–</span>}
              <span class="mono">{name}</span>
              {layer?.ended && layer.ended - layer.started >= 0.001 && <span class="quiet">{duration(layer.ended - layer.started)}</span>}
            </div>
          );
        })}
      </div>
      {!passed && feedback && (
        <div class="back">
          <h4>Went back to the model, word for word</h4>
          <pre>
            {split(feedback, draft as Record<string, never>).map((part, n) =>
              part.path ? (
                <button type="button" class="pathlink" key={n} onMouseEnter={() => light?.(part.path ?? "")} onMouseLeave={() => light?.("")} onFocus={() => light?.(part.path ?? "")} onBlur={() => light?.("")} onClick={() => document.querySelector("u")?.scrollIntoView({ block: "center" })}>
                  {part.text}
                </button>
              ) : (
                part.text
              ),
            )}
          </pre>
        </div>
      )}
    </section>
  );
}
