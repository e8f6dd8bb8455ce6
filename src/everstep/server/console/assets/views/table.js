// Steps as a table that can be searched, in the place of the graph.

import { at as path, get, query } from "../api.js";
import { Badge, html, Problem, Took, useEffect, useState } from "../html.js";
import { clock } from "../words.js";

const PAGE = 200;

export function Table({ id, place, step, pick, version, close }) {
  const [pages, setPages] = useState({ rows: [], next: null, error: null });
  const [text, setText] = useState("");
  const load = (after, before) => get(path`/runs/${place}/steps` + query({ after, limit: PAGE })).then(
    (told) => setPages({ rows: [...before, ...told.steps.filter((one) => one.address)].slice(-3 * PAGE), next: told.next, error: null }),
    (error) => setPages({ rows: before, next: null, error }),
  );
  useEffect(() => { load(0, []); }, [place, version]);
  const rows = pages.rows.filter((one) => !text || one.address.includes(text) || (one.status || "").includes(text)).slice(0, 250);
  return html`<div class="pane-tools"><button onClick=${close}>Graph (t)</button><input type="search" aria-label="Search steps" placeholder="part of a name or status" value=${text} onInput=${(event) => setText(event.target.value)} />
    <span class="quiet">${rows.length} shown</span>${pages.next != null && html`<button onClick=${() => load(pages.next, pages.rows)}>More</button>`}</div>
    <${Problem} error=${pages.error} />
    <table><thead><tr><th>Step</th><th>Status</th><th>Began</th><th>Took</th><th>Checkpoint</th></tr></thead>
    <tbody>${rows.map((one, k) => html`<tr key=${k} class=${one.address === step ? "picked" : ""}><td><button class="plain" onClick=${() => pick(one.address)}>${one.address}</button>${one.error ? html` <span class="bad">${one.error.type}</span>` : null}</td>
      <td>${one.status ? html`<${Badge} status=${one.status} />` : one.items ? `${one.items.completed} of ${one.items.count}` : ""}</td><td>${one.started_at ? clock(one.started_at) : ""}</td><td><${Took} seconds=${one.seconds} /></td><td>${one.checkpoint}</td></tr>`)}</tbody></table>`;
}
