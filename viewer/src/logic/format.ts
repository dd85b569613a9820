// How figures are written: whole to 9,999, costs with four decimals under a dollar, and a dash for what is not known.

const WHOLE = new Intl.NumberFormat("en-US");
export const DASH = "–";

export function count(n: number | null | undefined): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return DASH;
  const size = Math.abs(n);
  if (size < 10_000) return WHOLE.format(Math.round(n));
  if (size < 999_950) return `${(n / 1e3).toFixed(1)}k`;
  if (size < 999_995_000) return `${(n / 1e6).toFixed(2)}M`;
  return `${(n / 1e9).toFixed(2)}G`;
}

/** Every digit, for where somebody points. */
export function exact(n: number | null | undefined): string {
  return n === null || n === undefined ? "not known" : WHOLE.format(n);
}

export function money(cost: number | null | undefined): string {
  if (cost === null || cost === undefined) return DASH;
  return cost < 1 ? `$${cost.toFixed(4)}` : `$${cost.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** A limit in dollars, as somebody would write it down. */
export function allowedMoney(cost: number | null): string {
  return money(cost).replace(/(\.\d\d)(\d*?)0+$/, "$1$2");
}

/** A duration, given in seconds. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
  const ms = seconds * 1000;
  if (ms < 1) return "<1 ms";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, "0")}s`;
  return `${Math.floor(whole / 3600)}h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  if (bytes < 999_950) return `${(bytes / 1e3).toFixed(1)} kB`;
  if (bytes < 999_950_000) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${(bytes / 1e9).toFixed(2)} GB`;
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : DASH;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${WHOLE.format(n)} ${n === 1 ? one : many}`;
}

/** How long ago it was, given seconds since 1970. */
export function age(at: number, now: number): string {
  const seconds = Math.max(0, Math.round(now - at));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** The time of the day here. */
export function clock(at: number): string {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export function utc(at: number): string {
  return `${new Date(at * 1000).toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

export function shortId(id: string): string {
  return id.length > 12 ? `${id.slice(0, 4)}…${id.slice(-6)}` : id;
}

/** The first line that says something, at most so long. */
export function firstLine(text: string, most = 200): string {
  for (const line of text.split("\n", 50)) {
    const told = line.trim();
    if (told) return told.length > most ? `${told.slice(0, most)}…` : told;
  }
  return "";
}
