// A conversation as a text: for people, and for a program that goes on from it.

import type { Facts, Happened } from "../api.ts";
import { blocks, list, object, text } from "./values.ts";

/** The messages of a path, in the order of the history. */
export function inOrder(known: ReadonlyMap<number, Happened>): Happened[] {
  return [...known].toSorted(([one], [other]) => one - other).map(([, event]) => event);
}

function fenced(told: string, kind = ""): string {
  const longest = Math.max(2, ...[...told.matchAll(/`+/g)].map((found) => found[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${kind}\n${told}\n${fence}`;
}

export function resultText(block: Facts): string {
  const content = block["content"];
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return list(content).map((each) => text(object(each)["text"]) || `[${text(object(each)["type"])}]`).join("\n");
  return text(content);
}

export function callText(block: Facts): string {
  const given = block["input_json"] ?? block["input"];
  if (given === undefined) return "{}";
  return typeof given === "string" ? given : JSON.stringify(given);
}

export function markdown(messages: readonly Happened[]): string {
  const parts: string[] = [];
  for (const event of messages) {
    const role = text(object(event["message"])["role"]);
    const said: string[] = [];
    for (const block of blocks(event)) {
      switch (block["type"]) {
        case "text":
          said.push(text(block["text"]));
          break;
        case "tool_use":
          said.push(`Calls \`${text(block["name"])}\`:\n\n${fenced(callText(block), "json")}`);
          break;
        case "tool_result":
          said.push(`Result${block["is_error"] === true ? " (an error)" : ""}:\n\n${fenced(resultText(block))}`);
          break;
        case "thinking":
          break;
        default:
          said.push(`[${text(block["type"])}]`);
      }
    }
    if (said.length) parts.push(`## ${role === "assistant" ? "Assistant" : "User"}\n\n${said.join("\n\n")}`);
  }
  return `${parts.join("\n\n")}\n`;
}

/** A program that has the conversation, to be gone on from. */
export function python(messages: readonly Happened[]): string {
  const told = JSON.stringify(messages.map((event) => event["message"] ?? null));
  const literal = JSON.stringify(told).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
  return `from journeyman import load_messages\n\nmessages = load_messages(${literal})\n`;
}
