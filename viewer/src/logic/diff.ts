// What changed between two texts: lines first, then the words of lines that took each other's place.

export interface Word {
  text: string;
  /** Whether it is only on this side. Blanks never are. */
  isMarked: boolean;
}

export interface Line {
  sign: " " | "-" | "+";
  text: string;
  words: Word[] | null;
  /** Its number on either side, from 1. */
  before: number | null;
  after: number | null;
}

type Pair = [number, number];

const MOST = 4_000_000;

/** The pairs of places at which two sequences are the same, as many as there can be; of very long ones, fewer. */
export function common(before: readonly string[], after: readonly string[], fromEnd = true): Pair[] {
  let start = 0;
  const most = Math.min(before.length, after.length);
  while (start < most && before[start] === after[start]) start += 1;
  let end = 0;
  while (fromEnd && end < most - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const pairs: Pair[] = [];
  for (let at = 0; at < start; at += 1) pairs.push([at, at]);
  const n = before.length - start - end;
  const m = after.length - start - end;
  if (n > 0 && m > 0 && n * m <= MOST) {
    const width = m + 1;
    const table = new Uint32Array((n + 1) * width);
    for (let i = n - 1; i >= 0; i -= 1) {
      for (let j = m - 1; j >= 0; j -= 1) {
        const at = i * width + j;
        table[at] =
          before[start + i] === after[start + j]
            ? (table[at + width + 1] ?? 0) + 1
            : Math.max(table[at + width] ?? 0, table[at + 1] ?? 0);
      }
    }
    for (let i = 0, j = 0; i < n && j < m; ) {
      const at = i * width + j;
      if (before[start + i] === after[start + j]) {
        pairs.push([start + i, start + j]);
        i += 1;
        j += 1;
      } else if ((table[at + width] ?? 0) >= (table[at + 1] ?? 0)) i += 1;
      else j += 1;
    }
  }
  for (let at = end; at > 0; at -= 1) pairs.push([before.length - at, after.length - at]);
  return pairs;
}

const WORDS = /\s+|[\p{L}\p{N}_]+(?:[.,:][\p{N}]+)*|[^\s]/gu;

function pieces(text: string): string[] {
  return text.length > 20_000 ? [text] : (text.match(WORDS) ?? []);
}

/** Both sides of a line that changed, with what is only there marked. Where little is the same, all of it is. */
export function words(before: string, after: string): [Word[], Word[]] {
  const [one, other] = [pieces(before), pieces(after)];
  const pairs = common(one, other);
  const same = pairs.reduce((all, [at]) => all + ((one[at] ?? "").trim() ? (one[at] ?? "").length : 0), 0);
  const longest = Math.max(before.trim().length, after.trim().length);
  const isOther = same * 5 < longest;
  const [left, right] = [new Set(pairs.map(([at]) => at)), new Set(pairs.map(([, at]) => at))];
  const marked = (told: string[], kept: Set<number>): Word[] => {
    const found: Word[] = [];
    told.forEach((text, at) => {
      const isMarked = text.trim() !== "" && (isOther || !kept.has(at));
      const last = found[found.length - 1];
      if (last && last.isMarked === isMarked) last.text += text;
      else found.push({ text, isMarked });
    });
    return found;
  };
  return [marked(one, left), marked(other, right)];
}

/** Two texts as lines: those that are the same once, those that are not with their sign. */
export function lines(before: string, after: string): Line[] {
  const [one, other] = [before.split("\n"), after.split("\n")];
  const found: Line[] = [];
  let [i, j] = [0, 0];
  const changed = (upToOne: number, upToOther: number) => {
    const [gone, come] = [one.slice(i, upToOne), other.slice(j, upToOther)];
    const both = gone.map((text, at) => (at < come.length ? words(text, come[at] ?? "") : null));
    gone.forEach((text, at) => found.push({ sign: "-", text, words: both[at]?.[0] ?? null, before: i + at + 1, after: null }));
    come.forEach((text, at) => found.push({ sign: "+", text, words: both[at]?.[1] ?? null, before: null, after: j + at + 1 }));
    [i, j] = [upToOne, upToOther];
  };
  for (const [a, b] of common(one, other)) {
    changed(a, b);
    found.push({ sign: " ", text: one[a] ?? "", words: null, before: a + 1, after: b + 1 });
    [i, j] = [a + 1, b + 1];
  }
  changed(one.length, other.length);
  return found;
}

export interface Beside {
  before: Line | null;
  after: Line | null;
}

/** The same, side by side: what took each other's place stands in one row. */
export function beside(found: readonly Line[]): Beside[] {
  const rows: Beside[] = [];
  let [gone, come]: [Line[], Line[]] = [[], []];
  const flush = () => {
    for (let at = 0; at < Math.max(gone.length, come.length); at += 1) rows.push({ before: gone[at] ?? null, after: come[at] ?? null });
    [gone, come] = [[], []];
  };
  for (const line of found) {
    if (line.sign === "-") gone.push(line);
    else if (line.sign === "+") come.push(line);
    else {
      flush();
      rows.push({ before: line, after: line });
    }
  }
  flush();
  return rows;
}

/** Only what changed, with a few lines around; `null` stands for what is left out. */
export function around(found: readonly Line[], most = 3): (Line | null)[] {
  const keeps = new Uint8Array(found.length);
  found.forEach((line, at) => {
    if (line.sign === " ") return;
    keeps.fill(1, Math.max(0, at - most), Math.min(found.length, at + most + 1));
  });
  const told: (Line | null)[] = [];
  found.forEach((line, at) => {
    if (keeps[at]) told.push(line);
    else if (told[told.length - 1] !== null) told.push(null);
  });
  return told;
}
