// What changed, as it happens: one connection for all tabs of a browser, none while no tab is looked at.
//
// The tab that holds the lock has the connection and tells the others what comes. A hidden tab lets go of the
// lock, so another takes over. Only ids come; each view asks for what it shows.

import { address } from "./api.js";

const LOCK = "everstep-live";
const listeners = new Set();
let channel = null;
let source = null;
let letGo = null;
let last = "";
export const state = { isLive: false, isTroubled: false };

/** Call `listener` with `{kind: "runs", runs: [{run_id, sequence, status}]}`, `refetch` after a gap, or `trouble`; returns how to stop. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function begin(prefix) {
  channel = new BroadcastChannel(`everstep-live${prefix}`);
  channel.onmessage = (event) => {
    if (event.data.kind !== "who") tell(event.data);
    else if (source) channel.postMessage({ kind: "live", isLive: source.readyState === EventSource.OPEN });
  };
  document.addEventListener("visibilitychange", look);
  look();
}

function look() {
  if (document.hidden) return stop();
  tell({ kind: "refetch" });
  channel.postMessage({ kind: "who" }); // the tab that has the connection says how it is
  lead();
}

function lead() {
  if (letGo || !navigator.locks) return navigator.locks ? undefined : connect();
  const giveUp = new AbortController();
  letGo = () => giveUp.abort();
  navigator.locks.request(LOCK, { signal: giveUp.signal }, () => new Promise((done) => {
    letGo = done;
    connect();
  })).catch(() => {});
}

function stop() {
  if (source) source.close();
  source = null;
  if (letGo) letGo();
  letGo = null;
}

function connect() {
  source = new EventSource(address(`/changes${last ? `?after=${encodeURIComponent(last)}` : ""}`));
  source.onopen = () => share({ kind: "live", isLive: true });
  source.onerror = () => share({ kind: "live", isLive: false });
  for (const kind of ["ready", "runs", "refetch", "trouble"])
    source.addEventListener(kind, (event) => {
      last = event.lastEventId || last;
      share(JSON.parse(event.data));
    });
}

function share(told) {
  channel.postMessage(told);
  tell(told);
}

function tell(told) {
  if (told.kind === "live") state.isLive = told.isLive;
  if (told.kind === "trouble" || told.kind === "runs") state.isTroubled = told.kind === "trouble";
  for (const listener of listeners) listener(told);
}

/** Call `ask` at most every `least` milliseconds, and once more if it was wanted meanwhile. */
export function sparse(ask, least = 250) {
  let timer = null;
  let wanted = false;
  const run = () => {
    timer = null;
    if (!wanted) return;
    wanted = false;
    timer = setTimeout(run, least);
    ask();
  };
  const call = () => {
    wanted = true;
    if (!timer) run();
  };
  call.stop = () => clearTimeout(timer);
  return call;
}
