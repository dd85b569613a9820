// A page that is one file, with a recording in it: what a server would be asked for is found in the page itself.

import type { Happened, Piece, Run, Sent } from "./api";
import { goesOn } from "./logic/tree";

interface Embedded {
  run: Run;
  events: Happened[];
  /** Each with the numbers of its pieces. */
  requests: (Sent & { pieces: number[] })[];
  pieces: Piece[];
}

const block = document.getElementById("recording");

/** The recording in this page; null where a server is asked. A run that went on when it was written stands still here. */
export const embedded: Embedded | null = block ? (JSON.parse(block.textContent ?? "") as Embedded) : null;
if (embedded && goesOn(embedded.run)) embedded.run.status = "left";

/** What a server would answer to `api/runs/{id}{rest}`; undefined: that there is nothing. */
export function answer(page: Embedded, path: string): unknown {
  const [, rest = ""] = /^api\/runs\/[^/?]+(.*)$/.exec(path) ?? [];
  const [what = "", given = ""] = rest.slice(1).split("?");
  const [kind, n] = what.split("/");
  if (kind === "") return page.run;
  if (kind === "events" && n === undefined) {
    const after = Number(new URLSearchParams(given).get("after"));
    return { events: page.events.filter((event) => event.n > after), more: false };
  }
  if (kind === "events") return page.events.find((event) => event.n === Number(n));
  if (kind === "requests" && n === undefined) return { requests: page.requests };
  const sent = kind === "requests" ? page.requests.find((each) => each.n === Number(n)) : undefined;
  const known = new Map(page.pieces.map((piece) => [piece.number, piece]));
  return sent && { ...sent, pieces: sent.pieces.map((number) => known.get(number)) };
}
