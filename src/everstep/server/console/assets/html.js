// What every view is made of: the view library, and a few pieces that look the same everywhere.

import {
  html, render, useCallback, useEffect, useMemo, useRef, useState,
} from "./vendor/htm-preact-3.1.1.js";
import { go, here } from "./route.js";
import { moment, since, span, STATUS } from "./words.js";

export { html, render, useCallback, useEffect, useMemo, useRef, useState };

/** A link within the console: no page is loaded anew. */
export function Link({ to, children, ...rest }) {
  const onClick = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${here.prefix + to} onClick=${onClick} ...${rest}>${children}</a>`;
}

/** A status as a word with a mark: never by colour alone. */
export function Badge({ status, title }) {
  const known = STATUS[status] || { mark: "·", kind: "quiet" };
  return html`<span class=${`badge ${known.kind}`} title=${title}><i aria-hidden="true">${known.mark}</i> ${status}</span>`;
}

/** A time as it is read here, with how long ago; the whole of it on pointing. */
export function Time({ at, now }) {
  if (!at) return html`<span class="quiet">–</span>`;
  return html`<time datetime=${at} title=${moment(at)}>${since(at, now)}</time>`;
}

/** How long something took. */
export function Took({ seconds }) {
  return seconds == null ? html`<span class="quiet">–</span>` : html`<span>${span(seconds)}</span>`;
}

/** What went wrong with a request, and what to do. */
export function Problem({ error, retry }) {
  if (!error) return null;
  return html`<div class="problem" role="alert">
    <strong>${error.message}</strong> ${error.fix ? html`<span>${error.fix}</span>` : null}
    ${retry ? html` <button onClick=${retry}>Try again</button>` : null}
  </div>`;
}

/**
 * Something asked of the service; what came before stays until there is an answer. For another `key` what is under
 * way is given up. Anew, by `version` or `reload`, it is asked once that has come: where answers take longer than
 * things take to change, each would be given up for the next, and none ever be shown.
 */
export function useAsked(ask, key, quiet, version) {
  const [told, setTold] = useState({ data: null, error: null, key: null });
  const [again, setAgain] = useState(0);
  const newest = useRef();
  const asking = useRef();
  newest.current = ask;
  useEffect(() => {
    const mine = { stop: new AbortController(), isBusy: false, isWanted: false };
    asking.current = mine;
    return () => mine.stop.abort();
  }, [key]);
  useEffect(() => {
    const mine = asking.current;
    const { signal } = mine.stop;
    const then = (show) => (came) => {
      if (signal.aborted) return;
      mine.isBusy = false;
      show(came);
      if (mine.isWanted) begin();
    };
    const begin = () => {
      [mine.isBusy, mine.isWanted] = [true, false];
      Promise.resolve(newest.current(signal)).then(
        then((data) => setTold({ data, error: null, key })),
        then((error) => setTold((before) => ({ data: quiet || before.key === key ? before.data : null, error, key }))),
      );
    };
    if (mine.isBusy) mine.isWanted = true;
    else begin();
  }, [key, again, version]);
  return { ...told, isLoading: told.key !== key, reload: () => setAgain((n) => n + 1) };
}

/** Something that is done, and what came of it: `reload` after, `close` where it went well. */
export function useDoing(reload, close, after) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const doIt = async (doing) => {
    setBusy(true);
    setError(null);
    try {
      const told = await doing();
      close();
      reload();
      if (after) after(told);
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return { error, isBusy, doIt };
}

/** A dialog over the page: Escape closes it, and the focus goes back where it was. */
export function Dialog({ title, close, children }) {
  const ref = useRef();
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before && before.focus && before.focus();
  }, []);
  return html`<dialog ref=${ref} aria-label=${title} onCancel=${(event) => { event.preventDefault(); close(); }}>
    <header class="row"><h2>${title}</h2><button class="plain" aria-label="Close" onClick=${close}>✕</button></header>
    ${children}
  </dialog>`;
}
