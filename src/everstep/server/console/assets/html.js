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

/** Something asked of the service again whenever `key` is another; what came before stays until then. */
export function useAsked(ask, key, quiet) {
  const [told, setTold] = useState({ data: null, error: null, key: null });
  const [again, setAgain] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    Promise.resolve(ask(stop.signal)).then(
      (data) => stop.signal.aborted || setTold({ data, error: null, key }),
      (error) => stop.signal.aborted || error.name === "AbortError"
        || setTold((before) => ({ data: quiet || before.key === key ? before.data : null, error, key })),
    );
    return () => stop.abort();
  }, [key, again]);
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
