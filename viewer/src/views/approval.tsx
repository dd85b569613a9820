// What waits for a person: a call that somebody has to allow, or a question of the model. A click counts once, however
// often it is made, and only for the card that was looked at.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Facts, Signal, SignalAnswer } from "../api";
import type { Step } from "../logic/tree";
import { list, object, text } from "../logic/values";
import type { Recording } from "../recording";
import { fresh, tell } from "./operators";
import { useEntire } from "./pane";
import { act, type Acts, Icon, Key, StateIcon, Switch, toast, useKeys } from "./parts";
import { WouldHappen } from "./would";

const SETTLES_MS = 500;
/** On a busy machine a moment without frames is not one in which nothing moved. */
const SETTLES_FRAMES = 12;
const MOVED = "What is asked has just moved or changed. Look again, then press once more.";

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

/** An answer as it is being given: what was written so far, and what sends it. */
type Answering = ReturnType<typeof useAnswering>;

function useAnswering(recording: Recording, facts: Facts) {
  const [id, questionId] = [text(facts["id"]), text(facts["question_id"])];
  const [settled, ref] = useSettled(`${id}/${questionId}`);
  const [mode, setMode] = useState<Mode>("asks");
  const [extent, setExtent] = useState("once");
  const [written, write] = useState("");
  const [problem, setProblem] = useState("");
  const [answer, setAnswer] = useState<SignalAnswer | null>(null);
  const dedup = useRef(fresh());
  // Whoever has begun to write here has seen what is asked, also if that makes the card move.
  const isLookedAt = settled || mode !== "asks" || written !== "";
  const send = async (signal: Omit<Signal, "idempotency_key">) => {
    if (!isLookedAt) return toast(MOVED);
    const told = await tell(recording, { ...signal, idempotency_key: `${dedup.current}-${signal.decision ?? signal.kind}`, question_id: questionId || id });
    if (!told) return;
    setAnswer(told);
    // The card may be gone by now: somebody else has answered.
    if (told.status !== "taken") toast(`${outcome(told)}. ${told.told}`);
  };
  const begin = (next: Mode, text: string) => {
    write(text);
    setMode(next);
  };
  const approve = () => void send({ kind: "approve", decision: "allow", extent: extent === "always" ? "always" : extent === "once" ? "once" : "run" });
  const change = () => {
    if (mode !== "changes") return begin("changes", JSON.stringify(object(facts["arguments"]), null, 2));
    try {
      void send({ kind: "approve", decision: "allow", arguments: JSON.parse(written) as Facts });
    } catch (error) {
      setProblem(`This is no JSON: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  const deny = () => (mode === "denies" ? void send({ kind: "approve", decision: "deny", text: written }) : begin("denies", ""));
  const say = (text: string) => void send({ kind: "answer", text });
  /** Take the keys of a field: Enter sends, unless it makes a new line there, and Escape leaves it. */
  const onKeyDown = (act: () => void) => (event: KeyboardEvent) => {
    if (event.key === "Enter" && (mode !== "changes" || event.ctrlKey)) {
      event.preventDefault();
      act();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      setMode("asks");
    }
  };
  return { ref: ref as never, mode, setMode, extent, setExtent, written, write, problem, answer, isLookedAt, approve, change, deny, say, onKeyDown };
}

function outcome(answer: SignalAnswer): string {
  return answer.status === "over" ? "The run has ended" : "Already decided";
}

interface CardGiven {
  recording: Recording;
  step: Step;
  /** Whether only the answer is shown here, since what is asked stands above. */
  isPinned?: boolean;
}

export function ApprovalCard({ recording, step, isPinned = false }: CardGiven) {
  const event = useEntire(recording, step.waiting?.event ?? null);
  const facts: Facts = event ?? {};
  const answering = useAnswering(recording, facts);
  const { mode, setMode, answer, approve, change, deny } = answering;
  const isQuestion = step.waiting?.kind === "question";
  const acts: Acts = mode === "asks" ? { y: approve, m: change, n: deny } : { Escape: () => setMode("asks") };
  useKeys((key) => !isQuestion && !answer && !isPinned && act(acts, key));
  if (!event || recording.isReadOnly) return null;
  if (answer && answer.status !== "taken") {
    return (
      <section class="approval late" role="region" aria-label="What was decided">
        <header>
          <StateIcon state="done" isGood /> <b>{outcome(answer)}</b> {answer.told}
        </header>
        <p>Your answer changed nothing. You can still steer the run, or stop it.</p>
      </section>
    );
  }
  if (isQuestion) return <Question facts={facts} answering={answering} />;
  return (
    <section class={`approval${isPinned ? " pinned" : ""}`} role="region" aria-label={isPinned ? "Your answer" : "What waits for you"} ref={answering.ref}>
      {!isPinned && <Asked recording={recording} step={step} facts={facts} name={step.title || text(event.tool_name)} />}
      <InPlace answering={answering} />
      <Buttons answering={answering} offers={list(facts["offers"]).map(text)} isPinned={isPinned} />
    </section>
  );
}

function Question({ facts, answering }: { facts: Facts; answering: Answering }) {
  const { ref, written, write, isLookedAt, say, onKeyDown } = answering;
  return (
    <section class="approval" role="region" aria-label="What waits for you" ref={ref}>
      <header>
        <StateIcon state="waits" /> <b>{text(facts["question"])}</b>
      </header>
      <div class="buttons">
        {list(facts["options"]).map(text).map((option) => (
          <button type="button" key={option} aria-disabled={!isLookedAt} onClick={() => say(option)}>
            {option}
          </button>
        ))}
        <input class="grow" value={written} aria-label="Your answer" placeholder="Another answer" onInput={(typed) => write(typed.currentTarget.value)} onKeyDown={onKeyDown(() => written && say(written))} />
        <button type="button" class="primary" disabled={!written} aria-disabled={!isLookedAt} onClick={() => say(written)}>
          Answer
        </button>
      </div>
    </section>
  );
}

function Asked({ recording, step, facts, name }: { recording: Recording; step: Step; facts: Facts; name: string }) {
  const args = object(facts["arguments"]);
  const target = text(args["path"] ?? args["file"] ?? args["command"]);
  const rule = text(facts["rule"]);
  return (
    <>
      <header>
        <StateIcon state="waits" />
        <b>
          May it {name} {target && <code>{target.slice(0, 80)}</code>}?
        </b>
        <span class="spacer" />
        <span class="quiet">
          for exactly this <code>{text(facts["question_id"]).slice(0, 8)}</code>
        </span>
      </header>
      <p class="why">
        {text(facts["question"])} {rule && <span class="quiet">For the session this allows: {rule}</span>}
      </p>
      <WouldHappen recording={recording} step={step} name={name} args={args} />
    </>
  );
}

/** Where other arguments are written, or why not. */
function InPlace({ answering }: { answering: Answering }) {
  const { mode, written, write, problem, change, deny, onKeyDown } = answering;
  const field = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  // Before the next key comes: else the first letters of a reason would be keys of the page.
  useLayoutEffect(() => field.current?.focus(), [mode]);
  if (mode === "asks") return null;
  return (
    <div class="inplace">
      <label>
        {mode === "changes" ? "Arguments, as JSON" : "Why not? The model reads it; it may be empty."}
        {mode === "changes" ? (
          <textarea ref={field} rows={8} value={written} onInput={(typed) => write(typed.currentTarget.value)} onKeyDown={onKeyDown(change)} />
        ) : (
          <input ref={field} value={written} onInput={(typed) => write(typed.currentTarget.value)} onKeyDown={onKeyDown(deny)} />
        )}
      </label>
      {mode === "changes" && problem && (
        <p class="bad" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

function Buttons({ answering, offers, isPinned }: { answering: Answering; offers: string[]; isPinned: boolean }) {
  const { mode, extent, setExtent, answer, isLookedAt, approve, change, deny } = answering;
  const hasExtents = offers.length > 1 && mode === "asks";
  const isSent = answer !== null;
  return (
    <div class="buttons" aria-busy={!isLookedAt}>
      <button type="button" class="primary" disabled={isSent} aria-disabled={!isLookedAt} onClick={mode === "changes" ? change : approve}>
        {isSent ? "Sent" : mode === "changes" ? "Approve these" : isPinned ? `Approve ${extent}` : "Approve"} {!isPinned && mode === "asks" && <Key>y</Key>}
      </button>
      {hasExtents && !isPinned && <Switch label="How far it reaches" choices={offers.map((each) => [each, each])} at={extent} choose={setExtent} />}
      {hasExtents && isPinned && (
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
        <button type="button" class="change" disabled={isSent} onClick={change}>
          {isPinned ? "Change" : "Change arguments"} {!isPinned && <Key>m</Key>}
        </button>
      )}
      <span class="spacer" />
      <button type="button" class="danger" disabled={isSent} onClick={deny}>
        {mode === "denies" ? "Deny" : "Deny…"} {!isPinned && mode === "asks" && <Key>n</Key>}
      </button>
    </div>
  );
}
