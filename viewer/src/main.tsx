// The page: which view is shown, and the keys that hold everywhere.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { askFirst } from "./client";
import { go, now, useRoute } from "./route";
import "./style.css";
import { Compare } from "./views/compare";
import { Key, useKeys } from "./views/parts";
import { RunPage } from "./views/run";
import { RunsPage } from "./views/runs";

const KEYS: [string, string][] = [
  ["j k", "next, previous row; arrows, too"],
  ["h l", "close, open, to the parent"],
  ["Enter  Esc", "into the right side, back"],
  ["e E", "next, previous error"],
  ["n N", "in changes: next, previous"],
  ["/", "filter"],
  ["c", "back to what failed; in Runs: no filters"],
  ["1-5", "tabs"],
  ["d", "changes; in Runs: compare the two selected"],
  ["x X", "select, select all since the last (Runs)"],
  ["Delete", "forget the selected (Runs)"],
  ["O", "fold or unfold all of a request"],
  ["[ ]", "move the splitter"],
  ["u", "copy the link"],
  ["g r", "all runs"],
  ["f", "follow what is live"],
  ["s", "say something to a live run"],
  ["p", "pause it, let it go on"],
  [".", "stop it"],
  ["y m n", "approve, change, deny what waits"],
  ["?", "this list"],
];

function Help() {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const show = () => (ref.current?.open ? ref.current.close() : ref.current?.showModal());
    addEventListener("help", show);
    return () => removeEventListener("help", show);
  }, []);
  return (
    <dialog ref={ref} aria-label="Keys" onClick={(event) => event.target === ref.current && ref.current?.close()}>
      <h2>Keys</h2>
      <dl class="keys">
        {KEYS.map(([keys, told]) => (
          <div key={keys}>
            <dt>
              {keys.split(/\s+/).map((key) => (
                <Key key={key}>{key}</Key>
              ))}
              <span class="sr">{keys}</span>
            </dt>
            <dd>{told}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button>Close</button>
      </form>
    </dialog>
  );
}

function App() {
  const route = useRoute();
  const [isAfterG, setAfterG] = useState(false);
  useKeys(
    (key) => {
      if (key === "?") {
        dispatchEvent(new CustomEvent("help"));
        return true;
      }
      if (isAfterG && key === "r") go({});
      setAfterG(key === "g");
      return false;
    },
  );
  return (
    <>
      {route["compare"] ? <Compare route={route} key={route["compare"]} /> : route["run"] ? <RunPage route={route} key={route["run"]} /> : <RunsPage route={route} />}
      <Help />
      <div id="toast" role="status" hidden />
      <div id="polite" class="sr" aria-live="polite" />
      <div id="urgent" class="sr" aria-live="assertive" />
    </>
  );
}

/** How long the first view waits for what it shows: to be drawn once, and not empty before, is sooner done. */
const PATIENCE_MS = 150;

const root = document.getElementById("app");
await Promise.race([askFirst(now()), new Promise((done) => window.setTimeout(done, PATIENCE_MS))]);
if (root) render(<App />, root);
