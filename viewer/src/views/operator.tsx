// What a person may say to a run that goes on: approve, answer, steer, pause, stop. A click counts once, however often
// it is made, and only for the card that was looked at.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Facts, Signal, SignalAnswer } from "../api";
import { Failed, say } from "../client";
import type { Step, Tree } from "../logic/tree";
import { list, object, text } from "../logic/values";
import type { Recording } from "../recording";
import { asked } from "./operators";
import { useEntire } from "./pane";
import { Icon, Key, StateIcon, toast, useKeys } from "./parts";
import { WouldHappen } from "./would";

const SETTLES_MS = 500;
/** On a busy machine a moment without frames is not one in which nothing moved. */
const SETTLES_FRAMES = 12;
const MOVED = "What is asked has just moved or changed. Look again, then press once more.";

function fresh(): string {
  // Not randomUUID: that is not there where the address is another machine's, and not encrypted.
  return [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-");
}

async function tell(recording: Recording, signal: Signal): Promise<SignalAnswer | null> {
  try {
    const answer = await say(recording.id, signal);
    void recording.ask();
    return answer;
  } catch (error) {
    toast(error instanceof Failed ? `${error.message} ${error.hint}` : String(error));
    return null;
  }
}

/** True half a second, and some frames, after what is asked appeared or moved. */
function useSettled(on: string): [boolean, { current: HTMLElement | null }] {
  const ref = useRef<HTMLElement>(null);
  const [settled, set] = useState(false);
  useEffect(() => {
    set(false);
    let top = Number.NaN;
    let since = performance.now();
    let frame = 0;
    let still = 0;
    const look = () => {
      const now = ref.current?.getBoundingClientRect().top ?? 0;
      if (now !== top) {
        top = now;
        since = performance.now();
        still = 0;
        set(false);
      } else if (++still >= SETTLES_FRAMES && performance.now() - since >= SETTLES_MS) set(true);
      frame = requestAnimationFrame(look);
    };
    frame = requestAnimationFrame(look);
    return () => cancelAnimationFrame(frame);
  }, [on]);
  return [settled, ref as { current: HTMLElement | null }];
}

type Mode = "asks" | "changes" | "denies";

export function ApprovalCard({ recording, step, isPinned = false }: { recording: Recording; step: Step; isPinned?: boolean }) {
  const waiting = step.waiting;
  const event = useEntire(recording, waiting?.event ?? null);
  const facts = event?.facts ?? {};
  const id = text(facts["id"]);
  const questionId = text(facts["question_id"]);
  const [settled, ref] = useSettled(`${id}/${questionId}`);
  const [mode, setMode] = useState<Mode>("asks");
  const [extent, setExtent] = useState<string>("once");
  const [written, setWritten] = useState("");
  const [problem, setProblem] = useState("");
  const [answer, setAnswer] = useState<SignalAnswer | null>(null);
  const dedup = useRef(fresh());
  const inPlace = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  const args = object(facts["arguments"]);
  const offers = list(facts["offers"]).map(text);
  const isQuestion = waiting?.kind === "question";

  // Whoever has begun to write here has seen what is asked, also if that makes the card move.
  const isLookedAt = settled || mode !== "asks" || written !== "";
  const send = async (signal: Omit<Signal, "idempotency_key">) => {
    if (!isLookedAt) return toast(MOVED);
    const told = await tell(recording, { ...signal, idempotency_key: `${dedup.current}-${signal.decision ?? signal.kind}`, question_id: questionId || id });
    if (!told) return;
    setAnswer(told);
    // The card may be gone by now: somebody else has answered.
    if (told.status !== "taken") toast(`${told.status === "over" ? "The run has ended" : "Already decided"}. ${told.told}`);
  };
  const approve = () => void send({ kind: "approve", decision: "allow", extent: extent === "always" ? "always" : extent === "once" ? "once" : "run" });
  const change = () => {
    if (mode !== "changes") {
      setWritten(JSON.stringify(args, null, 2));
      setMode("changes");
      return;
    }
    try {
      const given = JSON.parse(written) as Facts;
      void send({ kind: "approve", decision: "allow", arguments: given });
    } catch (error) {
      setProblem(`This is no JSON: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  const deny = () => {
    if (mode !== "denies") {
      setWritten("");
      setMode("denies");
    } else void send({ kind: "approve", decision: "deny", text: written });
  };
  // Before the next key comes: else the first letters of a reason would be keys of the page.
  useLayoutEffect(() => inPlace.current?.focus(), [mode]);
  useKeys(
    (key) => {
      if (isQuestion || answer || isPinned) return false;
      if (key === "y" && mode === "asks") approve();
      else if (key === "m" && mode === "asks") change();
      else if (key === "n" && mode === "asks") deny();
      else if (key === "Escape" && mode !== "asks") setMode("asks");
      else return false;
      return true;
    },
  );
  if (!waiting || !event || recording.isReadOnly) return null;
  if (answer && answer.status !== "taken") {
    return (
      <section class="approval late" role="region" aria-label="What was decided">
        <header>
          <StateIcon state="done" isGood /> <b>{answer.status === "over" ? "The run has ended" : "Already decided"}</b> {answer.told}
        </header>
        <p>Your answer changed nothing. You can still steer the run, or stop it.</p>
      </section>
    );
  }
  const keys = (event: KeyboardEvent, act: () => void) => {
    if (event.key === "Enter" && (mode !== "changes" || event.ctrlKey)) {
      event.preventDefault();
      act();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      setMode("asks");
    }
  };
  if (isQuestion) {
    const options = list(facts["options"]).map(text);
    return (
      <section class="approval" role="region" aria-label="What waits for you" ref={ref as never}>
        <header>
          <StateIcon state="waits" /> <b>{text(facts["question"])}</b>
        </header>
        <div class="buttons">
          {options.map((option) => (
            <button type="button" key={option} aria-disabled={!isLookedAt} onClick={() => void send({ kind: "answer", text: option })}>
              {option}
            </button>
          ))}
          <input class="grow" value={written} aria-label="Your answer" placeholder="Another answer" onInput={(typed) => setWritten(typed.currentTarget.value)} onKeyDown={(typed) => keys(typed, () => written && void send({ kind: "answer", text: written }))} />
          <button type="button" class="primary" disabled={!written} aria-disabled={!isLookedAt} onClick={() => void send({ kind: "answer", text: written })}>
            Answer
          </button>
        </div>
      </section>
    );
  }
  const name = step.title || text(event.tool_name);
  const target = text(args["path"] ?? args["file"] ?? args["command"]);
  const rule = text(facts["rule"]);
  return (
    <section class={`approval${isPinned ? " pinned" : ""}`} role="region" aria-label={isPinned ? "Your answer" : "What waits for you"} ref={ref as never}>
      {!isPinned && (
        <>
          <header>
            <StateIcon state="waits" />
            <b>
              May it {name} {target && <code>{target.slice(0, 80)}</code>}?
            </b>
            <span class="spacer" />
            <span class="quiet">
              for exactly this <code>{questionId.slice(0, 8)}</code>
            </span>
          </header>
          <p class="why">
            {text(facts["question"])} {rule && <span class="quiet">For the session this allows: {rule}</span>}
          </p>
          <WouldHappen recording={recording} step={step} name={name} args={args} />
        </>
      )}
      {mode === "changes" && (
        <div class="inplace">
          <label>
            Arguments, as JSON
            <textarea ref={inPlace} rows={8} value={written} onInput={(typed) => setWritten(typed.currentTarget.value)} onKeyDown={(typed) => keys(typed, change)} />
          </label>
          {problem && (
            <p class="bad" role="alert">
              {problem}
            </p>
          )}
        </div>
      )}
      {mode === "denies" && (
        <div class="inplace">
          <label>
            Why not? The model reads it; it may be empty.
            <input ref={inPlace} value={written} onInput={(typed) => setWritten(typed.currentTarget.value)} onKeyDown={(typed) => keys(typed, deny)} />
          </label>
        </div>
      )}
      <div class="buttons" aria-busy={!isLookedAt}>
        <button type="button" class="primary" disabled={answer !== null} aria-disabled={!isLookedAt} onClick={mode === "changes" ? change : approve}>
          {answer ? "Sent" : mode === "changes" ? "Approve these" : isPinned ? `Approve ${extent}` : "Approve"} {!isPinned && mode === "asks" && <Key>y</Key>}
        </button>
        {!isPinned && offers.length > 1 && mode === "asks" && (
          <span class="switch" role="group" aria-label="How far it reaches">
            {offers.map((each) => (
              <button type="button" key={each} aria-pressed={extent === each} onClick={() => setExtent(each)}>
                {each}
              </button>
            ))}
          </span>
        )}
        {isPinned && offers.length > 1 && mode === "asks" && (
          <label class="choice extent">
            <Icon shape="down" />
            <select aria-label="How far it reaches" value={extent} onChange={(chosen) => setExtent(chosen.currentTarget.value)}>
              {offers.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        {mode !== "changes" && (
          <button type="button" class="change" disabled={answer !== null} onClick={change}>
            {isPinned ? "Change" : "Change arguments"} {!isPinned && <Key>m</Key>}
          </button>
        )}
        <span class="spacer" />
        <button type="button" class="danger" disabled={answer !== null} onClick={deny}>
          {mode === "denies" ? "Deny" : "Deny…"} {!isPinned && mode === "asks" && <Key>n</Key>}
        </button>
      </div>
    </section>
  );
}

const WAITS: Record<string, string> = { steer: "waits for the next model call", follow_up: "waits for the end of the turn" };

export function Operator({ recording, tree, isNarrow }: { recording: Recording; tree: Tree; isNarrow: boolean }) {
  const [written, setWritten] = useState("");
  const [kind, setKind] = useState<"steer" | "follow_up">("steer");
  const [isStopping, setStopping] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const dedup = useRef(fresh());
  const name = recording.run?.agent ?? "";
  const waits = tree.waits;
  const queue = recording.signals.filter((told) => told.state === "waits" && (told.kind === "steer" || told.kind === "follow_up"));
  const isHeld = recording.signals.findLast((told) => (told.kind === "hold" || told.kind === "release") && told.state !== "late")?.kind === "hold";
  const isDurable = recording.run?.kind === "durable";
  const send = async () => {
    if (!written.trim()) return;
    const told = await tell(recording, { kind: isStopping ? "stop" : kind, text: written, idempotency_key: dedup.current });
    if (told?.status === "taken") {
      setWritten("");
      dedup.current = fresh();
    } else if (told) toast(told.told);
  };
  const stop = async () => {
    if (!isStopping) {
      setStopping(true);
      setWritten("");
      field.current?.focus();
      return;
    }
    const told = await tell(recording, { kind: "stop", text: written, idempotency_key: `${recording.id}-stop` });
    setStopping(false);
    setWritten("");
    if (told) toast(told.status === "taken" ? "It stops." : told.told);
  };
  const hold = async () => {
    const told = await tell(recording, { kind: isHeld ? "release" : "hold", idempotency_key: fresh() });
    if (told && told.status !== "taken") toast(told.told);
  };
  useKeys(
    (key) => {
      if (key === "s") field.current?.focus();
      else if (key === ".") void stop();
      else if (key === "p") void hold();
      else return false;
      return true;
    },
  );
  return (
    <section class="operator" role="region" aria-label="Operator">
      {queue.map((told) => (
        <p class="queued" key={told.n}>
          <span class="chip accent">{told.kind === "steer" ? "steer" : "follow up"}</span> <span>“{told.text}”</span> <span class="quiet wideonly">{told.waits_for ?? WAITS[told.kind]}</span>
          <span class="spacer" />
          {!isDurable && (
            <button type="button" class="plain" onClick={() => void tell(recording, { kind: "withdraw", text: String(told.n), idempotency_key: `withdraw-${told.n}` })}>
              Withdraw
            </button>
          )}
        </p>
      ))}
      {isNarrow && waits && <ApprovalCard key={asked(waits)} recording={recording} step={waits} isPinned={waits.waiting?.kind === "approval"} />}
      <div class="says">
        <div class="field">
          <input
            ref={field}
            value={written}
            aria-label={isStopping ? "Why it is stopped" : `Say something to ${name}`}
            placeholder={isStopping ? "Why? It may be empty. Enter stops it, Escape does not." : `Say something to ${name}…`}
            onInput={(event) => setWritten(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter") void (isStopping ? stop() : send());
              else if (event.key === "Escape") {
                setStopping(false);
                event.currentTarget.blur();
              } else return;
              event.preventDefault();
              event.stopPropagation();
            }}
          />
          {!isStopping && !isNarrow && !isDurable && (
            <span class="switch" role="group" aria-label="When it is read">
              <button type="button" aria-pressed={kind === "steer"} onClick={() => setKind("steer")}>
                steer
              </button>
              <button type="button" aria-pressed={kind === "follow_up"} onClick={() => setKind("follow_up")}>
                follow up
              </button>
            </span>
          )}
        </div>
        <button type="button" {...(isNarrow ? { "aria-label": isHeld ? "Go on" : "Pause" } : {})} onClick={() => void hold()}>
          <Icon shape="pause" /> <span class="wideonly">{isHeld ? "Go on" : "Pause"}</span> <Key>p</Key>
        </button>
        <button type="button" class="danger" {...(isNarrow ? { "aria-label": "Stop" } : {})} onClick={() => void stop()}>
          <Icon shape="stop" /> <span class="wideonly">Stop</span> <Key>.</Key>
        </button>
      </div>
    </section>
  );
}
