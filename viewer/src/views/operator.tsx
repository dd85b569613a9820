// What a person may say to a run that goes on: steer, pause, stop.

import { useRef, useState } from "preact/hooks";
import type { Tree } from "../logic/tree";
import type { Recording } from "../recording";
import { ApprovalCard } from "./approval";
import { asked, fresh, tell } from "./operators";
import { act, Icon, Key, Switch, toast, useKeys } from "./parts";

type Kind = "steer" | "follow_up";
const KINDS: [Kind, string][] = [["steer", "steer"], ["follow_up", "follow up"]];
const WAITS: Record<string, string> = { steer: "waits for the next model call", follow_up: "waits for the end of the turn" };

export function Operator({ recording, tree, isNarrow }: { recording: Recording; tree: Tree; isNarrow: boolean }) {
  const [written, setWritten] = useState("");
  const [kind, setKind] = useState<Kind>("steer");
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
  useKeys((key) => act({ s: () => field.current?.focus(), ".": () => void stop(), p: () => void hold() }, key));
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
          {!isStopping && !isNarrow && !isDurable && <Switch label="When it is read" choices={KINDS} at={kind} choose={setKind} />}
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
