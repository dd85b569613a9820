import { assert, test } from "vitest";

const modules = import.meta.glob<Record<string, unknown>>("../src/logic/*.ts", { eager: true });
const tests = import.meta.glob<string>(["./*.test.ts", "!./all.test.ts"], { query: "?raw", import: "default", eager: true });

test("each function of the logic is called by a test", () => {
  const told = Object.values(tests).map((text) => text.replace(/^import .*$/gm, "")).join("\n");
  const functions = Object.entries(modules).flatMap(([path, each]) => Object.entries(each).filter(([, value]) => typeof value === "function").map(([name]) => [path, name] as const));
  assert.isAbove(functions.length, 50);
  assert.deepEqual(functions.filter(([, name]) => !new RegExp(`\\b${name}\\b[(),]`).test(told)), []);
});
