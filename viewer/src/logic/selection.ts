// Which runs of a list are chosen.

/** What is chosen after a click on one of these rows: it changes its state. `from`: the row that was clicked before; the
 * rows between them get the state of this one. A row that is not there any more is nowhere. */
export function choose(chosen: ReadonlySet<string>, rows: readonly string[], at: string, from: string | null = null): Set<string> {
  const next = new Set(chosen);
  const isChosen = !chosen.has(at);
  const start = from === null ? -1 : rows.indexOf(from);
  const end = rows.indexOf(at);
  const clicked = start < 0 || end < 0 ? [at] : rows.slice(Math.min(start, end), Math.max(start, end) + 1);
  for (const each of clicked) {
    if (isChosen) next.add(each);
    else next.delete(each);
  }
  return next;
}
