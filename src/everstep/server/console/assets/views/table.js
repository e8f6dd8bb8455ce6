// Steps as a table that can be searched, in the place of the graph.

import { at as path, get, query } from "../api.js";
import { Badge, html, Problem, Took, useAsked, useEffect, useState } from "../html.js";
import { clock, count } from "../words.js";
import { short } from "../addresses.js";

const PAGE = 200;
/** How many rows are shown, and in how many checkpoints is searched at once. */
const MOST = 250;
const SEARCHED = 20000;

export function Table({ id, place, step, pick, version, close }) {
  const [text, setText] = useState("");
  const [after, setAfter] = useState(0);
  useEffect(() => setAfter(0), [text, place]);
  const words = text.trim().toLowerCase();
  const told = useAsked((signal) => load(place, words, after, signal), JSON.stringify([place, words, after]), true, version);
  const found = told.data || { rows: [], next: null };
  return html`<div class="pane-tools"><button onClick=${close}>Graph (t)</button><input type="search" aria-label="Search steps" placeholder="part of a name, a status or an error" value=${text} onInput=${(event) => setText(event.target.value)} />
    <span class="quiet">${count(found.rows.length)} shown</span>${after > 0 && html`<button onClick=${() => setAfter(0)}>From the beginning</button>`}${found.next != null && html`<button onClick=${() => setAfter(found.next)}>${text ? "Search on" : "Next"}</button>`}</div>
    <${Problem} error=${told.error} />
    <table><thead><tr><th>Step</th><th>Status</th><th>Began</th><th class="right">Took</th><th class="right">Checkpoint</th></tr></thead>
    <tbody>${found.rows.map((one, k) => html`<tr key=${k} class=${short(one.address) === step ? "picked" : ""}><td><button class="link" onClick=${() => pick(one.address)}>${one.address}</button>${one.error ? html` <span class="bad">${one.error.type}</span>` : null}</td>
      <td>${one.status ? html`<${Badge} status=${one.status} />` : one.items ? `${one.items.completed} of ${one.items.count}` : ""}</td><td class="when">${one.started_at ? clock(one.started_at) : ""}</td><td class="right"><${Took} seconds=${one.seconds} /></td><td class="right">${one.checkpoint}</td></tr>`)}</tbody></table>`;
}

/** A page of steps; with words to look for those that have them, of as many checkpoints as it takes. */
async function load(place, words, after, signal) {
  const isLike = (one) => [one.address, one.status, one.error && one.error.type, one.error && one.error.message].some((said) => said && said.toLowerCase().includes(words));
  if (words) await new Promise((done) => setTimeout(done, 250)); // more may be typed
  if (signal.aborted) return null;
  const rows = [];
  let next = after;
  do {
    const told = await get(path`/runs/${place}/steps` + query({ after: next, limit: words && next ? 1000 : PAGE, full: words.includes("#") ? "true" : null }), signal);
    rows.push(...told.steps.filter((one) => one.address && (!words || isLike(one))));
    next = told.next;
  } while (words && next != null && rows.length < MOST && next - after < SEARCHED);
  return { rows: rows.slice(0, MOST), next };
}
