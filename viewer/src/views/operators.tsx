// What the persons who look after a run were asked, what they say to it, and what they did.

import type { Signal, SignalAnswer, Told } from "../api";
import { failureOf, say } from "../client";
import { clock, utc } from "../logic/format";
import type { Step, Tree } from "../logic/tree";
import { text } from "../logic/values";
import type { Recording } from "../recording";
import { toast } from "./parts";

/** A name for one thing that is said: with it a second click changes nothing. */
export function fresh(): string {
  // Not randomUUID: that is not there where the address is another machine's, and not encrypted.
  return [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-");
}

export async function tell(recording: Recording, signal: Signal): Promise<SignalAnswer | null> {
  try {
    const answer = await say(recording.id, signal);
    void recording.ask();
    return answer;
  } catch (error) {
    const { message, hint } = failureOf(error);
    toast(`${message} ${hint}`);
    return null;
  }
}

/** Names what a step asks: what was begun for one question, such as other arguments, is not there for the next. */
export function asked(step: Step): string {
  return `${step.key}/${text(step.waiting?.event["id"])}`;
}

const DID: Record<string, string> = { approve: "answered", answer: "answered", steer: "steered", follow_up: "said for later", hold: "paused it", release: "let it go on", stop: "stopped it", withdraw: "took back" };

const DECIDED: Record<string, string> = { allow: "allowed it", deny: "denied it", rewrite: "allowed it with other arguments" };

function deed(told: Told): string {
  const [decision = "", ...reason] = told.kind === "approve" ? (told.text ?? "").split(" ") : [];
  const [did, said] = told.kind === "approve" ? [DECIDED[decision] ?? "answered", reason.join(" ")] : [DID[told.kind] ?? told.kind, told.text];
  const became = told.state === "taken" ? "" : told.state === "late" ? ", too late" : `, ${told.state}`;
  return `${did}${said ? ` “${said}”` : ""}${became}`;
}

/** Who did what, as far as the store tells: what is asked, and what was said. */
export function WhoDidWhat({ recording, tree }: { recording: Recording; tree: Tree }) {
  const run = recording.run ?? tree.recording;
  const did = [
    { at: run.started, who: run.agent, what: "began" },
    ...[...tree.waiting.values()].flatMap(({ waiting, title }) => (waiting ? [{ at: waiting.event.at, who: title, what: "asks; whoever answers first decides" }] : [])),
    ...recording.signals.map((told) => ({ at: told.at, who: told.by, what: deed(told) })),
  ].toSorted((one, other) => one.at - other.at);
  return (
    <section class="did" role="region" aria-label="Who did what">
      <h3>Who did what</h3>
      {did.map(({ at, who, what }, n) => (
        <p class="line" key={n}>
          <span class="quiet" title={utc(at)}>
            {clock(at)}
          </span>
          <span>
            <b>{who}</b> {what}
          </span>
        </p>
      ))}
    </section>
  );
}
