// The store: what it can lose, whether it is well, how much it holds, and how long runs are kept.

import { act, at as path, get } from "../api.js";
import { may } from "../roles.js";
import { html, Link, Problem, Time, useAsked, useEffect, useState } from "../html.js";
import { runAt } from "../route.js";
import { byStatus, count, size, span } from "../words.js";

export default function Store({ me }) {
  const told = useAsked((signal) => get("/store", signal), "store");
  const ready = useAsked((signal) => get("/readyz", signal), "ready");
  useEffect(() => { document.title = "Store · everstep"; }, []);
  const it = told.data;
  return html`<div class="pad"><h1>Store</h1><${Problem} error=${told.error} />
    ${ready.data && html`<p class=${ready.data.status === "ready" ? "good" : "bad"}>${ready.data.status === "ready" ? "✓ It answers." : `✗ ${ready.data.reason}`}</p>`}
    ${it && html`
      <p><code>${it.url}</code> <span class="quiet">${it.server}, looked at <${Time} at=${it.looked_at} /></span></p>
      <div class="cards">
        <section class="card"><h2>Durability</h2><ul class="samples">${it.findings.map((one, k) => html`<li key=${k} class=${one.level === "fine" ? "" : "bad"}>${one.text} ${one.fix}</li>`)}</ul>
          <p class="quiet">a commit takes ${it.write_ms == null ? "–" : span(it.write_ms / 1000)}${it.single_writer ? ", one writer at a time" : ""}${it.skew_seconds ? `, its clock is ${span(Math.abs(it.skew_seconds))} ${it.skew_seconds > 0 ? "ahead" : "behind"}` : ""}</p></section>
        <section class="card"><h2>Runs</h2><${Told} value=${Object.fromEntries(byStatus(it.runs))} /><p class="quiet">${size(it.size_bytes)} in all</p></section>
        <section class="card"><h2>Open waits</h2><${Told} value=${it.waits} /></section>
        <section class="card"><h2>Kept</h2>${Object.keys(it.rules || {}).length ? html`<${Told} value=${it.rules} />` : html`<p class="quiet">For ever: no rule of retention is set for all flows.</p>`}${Object.keys(it.flows || {}).length > 0 && html`<h3>By flow</h3><${Told} value=${it.flows} />`}</section>
      </div>`}<${DeadLetters} me=${me} /></div>`;
}

/** Notices that could not be sent, to be sent again. */
function DeadLetters({ me }) {
  const told = useAsked((signal) => get("/notices?state=dead", signal), "dead letters", true);
  const [error, setError] = useState(null);
  const again = (doing) => doing.then(() => { setError(null); told.reload(); }, setError);
  const rows = told.data ? told.data.notices : [];
  return html`<h2>Dead letters</h2><${Problem} error=${told.error || error} />
    ${told.data && !rows.length && html`<p class="quiet">None: every notice was sent, or is still tried.</p>`}
    ${rows.length > 0 && html`<table><thead><tr><th>Run</th><th>Of</th><th>To</th><th>Tries</th><th>Why it failed</th><th>${may(me, "operator") && html`<button onClick=${() => again(act("/notices/again", {}))}>Send all again</button>`}</th></tr></thead><tbody>${rows.map((one) => html`<tr key=${one.id}><td><${Link} to=${runAt(one.run_id)}>${one.run_id}<//></td><td>${one.occasion.replaceAll("_", " ")}</td><td>${one.notifier}</td><td>${one.tries}</td><td>${one.error}</td>
      <td>${may(me, "operator") && html`<button onClick=${() => again(act(path`/notices/${one.id}/again`, {}))}>Send again</button>`}</td></tr>`)}</tbody></table>`}`;
}

function Told({ value }) {
  if (value == null) return html`<span class="quiet">not known</span>`;
  if (Array.isArray(value)) return value.length ? html`<ul class="samples">${value.map((one, k) => html`<li key=${k}><${Told} value=${one} /></li>`)}</ul>` : html`<span class="quiet">none</span>`;
  if (typeof value === "object" && !Object.keys(value).length) return html`<span class="quiet">none</span>`;
  if (typeof value === "object") return html`<dl class="keys">${Object.entries(value).map(([name, one]) => html`<dt class="quiet">${name.replaceAll("_", " ")}</dt><dd><${Told} value=${one} /></dd>`)}</dl>`;
  if (typeof value === "number") return count(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}
