import { assert, test } from "vitest";
import { split, underlined, valueAt } from "../src/logic/paths.ts";

test("paths in the words of a validator lead to values, and these are found in the preview", () => {
  const draft = { findings: [{ value: 46 }, { value: 4054.53 }] };
  assert.strictEqual(valueAt(draft, "findings[1].value"), 4054.53);
  assert.deepEqual(split("findings[0].value: it says 46. See nothing[3].else.", draft).filter((part) => part.path).map((part) => part.path), ["findings[0].value"]);
  assert.deepEqual(underlined("leads with 46 % of 10,046 and 46.2", draft, ["findings[0].value"]).filter((part) => part.path).map((part) => part.text), ["46"]);
  assert.deepEqual(underlined("about 4,054.53 $", draft, ["findings[1].value"]).filter((part) => part.path).map((part) => part.text), ["4,054.53"]);
});

test("a path that leads nowhere has no value and is no link", () => {
  const draft = { findings: [{ value: 46 }], title: "One" };
  assert.deepEqual(["findings[1].value", "findings.value", "other", "title.length"].map((path) => valueAt(draft, path)), [undefined, undefined, undefined, undefined]);
  assert.deepEqual(split("No path here.", draft), [{ text: "No path here.", path: null }]);
  assert.strictEqual(split("title: too short", draft)[0]?.path, "title");
});

test("of a line nothing is lost when values in it are underlined", () => {
  const draft = { low: 4, high: 46.25, name: "Approach" };
  const line = "Approach: 4 to 46.25 (46.3), 4,000 rows, 4";
  const parts = underlined(line, draft, ["low", "high", "name"]);
  assert.strictEqual(parts.map((part) => part.text).join(""), line);
  assert.deepEqual(parts.filter((part) => part.path).map((part) => `${part.path}=${part.text}`), ["name=Approach", "low=4", "high=46.25", "high=46.3", "low=4"]);
  assert.deepEqual(underlined("", draft, ["low"]), [{ text: "", path: null }]);
});
