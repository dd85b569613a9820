// What stands above a page: where one is, and what can be done with it anywhere.

import type { ComponentChildren } from "preact";
import { embedded } from "../offline";
import { copy, Icon, Key, To } from "./parts";

/** The way from the list of runs to here. A file with one run in it has no list. */
export function Where({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <nav aria-label="Where you are">
      {!embedded && (
        <>
          <To to={{}} class="home" aria-label="Runs">
            <Icon shape="back" />
          </To>
          <To to={{}} class="wideonly">
            journeyman
          </To>
          <i class="slash wideonly">/</i>
          <To to={{}} class="wideonly">
            Runs
          </To>
          <i class="slash wideonly">/</i>
        </>
      )}
      <b>{name}</b>
      {children}
    </nav>
  );
}

export function LinkButton() {
  return (
    <button type="button" class="plain wideonly" onClick={() => void copy(location.href, "The link")}>
      Copy link
    </button>
  );
}

export function HelpButton() {
  return (
    <button type="button" class="plain help" aria-label="Keys" onClick={() => dispatchEvent(new CustomEvent("help"))}>
      <Key>?</Key>
    </button>
  );
}
