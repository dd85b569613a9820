// Where somebody is: all of it in the address, so that Back goes back and a link leads to the same place.

import { useEffect, useState } from "preact/hooks";
import { embedded } from "./offline";

export type Route = Record<string, string>;

const changed = new Set<() => void>();

export function now(): Route {
  if (embedded) return { ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))), run: embedded.run.id, compare: "" };
  return Object.fromEntries(new URLSearchParams(location.search));
}

export function href(route: Route): string {
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(route)) if (value !== "") told.set(name, value);
  if (embedded) told.delete("run"); // there is no other one in a file
  const text = told.toString();
  if (embedded) return `#${text}`;
  return text ? `?${text}` : location.pathname;
}

export function go(route: Route, replace = false): void {
  const to = href(route);
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  for (const each of changed) each();
}

/** The same place, but for these. */
export function goOn(some: Route, replace = false): void {
  go({ ...now(), ...some }, replace);
}

export function useRoute(): Route {
  const [route, set] = useState(now);
  useEffect(() => {
    const take = () => set(now());
    changed.add(take);
    addEventListener("popstate", take);
    addEventListener("hashchange", take);
    return () => {
      changed.delete(take);
      removeEventListener("popstate", take);
      removeEventListener("hashchange", take);
    };
  }, []);
  return route;
}
