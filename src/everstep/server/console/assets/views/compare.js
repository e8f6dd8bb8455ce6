// Two runs, or two moments of one: where they part, which values differ, and the graph coloured by that.

import { at as path, get, query } from "../api.js";
import { Badge, html, Link, Problem, useAsked, useEffect, useMemo, useState } from "../html.js";
import { ask, go, here, runAt } from "../route.js";
import { Graph } from "./graph.js";
import { plain, short } from "../addresses.js";

export default function Compare() {
  const a = here.query.get("a") || "";
  const b = here.query.get("b") || "";
  const told = useAsked((signal) => (a && b ? get(`/compare${query({ a, b })}`, signal) : null), `${a}|${b}`);
  const [side, setSide] = useState("after");
  useEffect(() => { document.title = `${a} and ${b} · everstep`; }, [a, b]);
  const it = told.data;
  const differs = useMemo(() => new Set((it ? it.nodes : []).map((one) => plain(one.node))), [it]);
  const shown = it ? it[side] : null;
  const nodes = useAsked((signal) => (shown ? get(path`/runs/${`${shown.run_id}@${shown.checkpoint}`}/nodes` + query({ newest: 1000 }), signal) : null), shown ? `${shown.run_id}@${shown.checkpoint}` : "", true);
  const name = (one) => `${one.run_id}@${one.checkpoint}`;
  return html`<div class="pad"><h1>Compare</h1><${Pick} a=${a} b=${b} />
    <${Problem} error=${told.error} />
    ${a && b && told.isLoading && html`<p class="quiet">Comparing …</p>`}
    ${it && html`
      <p>${[it.before, it.after].map((one, k) => html`${k ? " and " : ""}<${Link} to=${runAt(one.run_id, one.checkpoint)}>${name(one)}<//> <${Badge} status=${one.status} />`)}${it.shared_until ? html`. They share all up to <${Link} to=${runAt(it.before.run_id, it.shared_until)}>checkpoint ${it.shared_until}<//>.` : ""}</p>
      ${it.first_difference ? html`<div class="note"><strong>The first difference:</strong> <${Link} to=${runAt(it.after.run_id, null, short(it.first_difference.address))}>${it.first_difference.address}<//> <span>${said(it.first_difference)}</span></div>`
    : html`<p class=${it.is_searched ? "good" : "quiet"}>${it.is_searched ? "Every step that finished in both is the same." : "They are too long to look for the first difference."}</p>`}
      ${it.is_cut && html`<p class="quiet">There are more differences than are shown.</p>`}
      <h2>Values</h2>
      ${it.values.length ? html`<div class="scroll"><table class="diff"><thead><tr><th>Value</th><th>${name(it.before)}</th><th>${name(it.after)}</th></tr></thead><tbody>${it.values.map((one) => html`<tr key=${one.path}><td>${one.path}</td><td class="before">${text(one.before)}</td><td class="after">${text(one.after)}</td></tr>`)}</tbody></table></div>` : html`<p class="quiet">No value differs.</p>`}
      <h2>Nodes</h2>
      ${it.nodes.length ? html`<table><thead><tr><th>Node</th><th>${name(it.before)}</th><th>${name(it.after)}</th><th>Values that differ</th></tr></thead><tbody>${it.nodes.map((one) => html`<tr key=${one.node}><td>${one.node}</td>${[0, 1].map((k) => html`<td>${!one.status ? html`<span class="quiet">the same</span>` : one.status[k] ? html`<${Badge} status=${one.status[k]} />` : html`<span class="quiet">did not run</span>`}${one.visits && one.visits[k] > 1 ? ` ×${one.visits[k]}` : ""}</td>`)}<td>${one.values.join(", ")}</td></tr>`)}</tbody></table>` : html`<p class="quiet">No node differs.</p>`}
      <div class="row">${["before", "after"].map((one) => html`<button key=${one} aria-pressed=${side === one} onClick=${() => setSide(one)}>Graph of ${name(it[one])}</button>`)}<span class="quiet">what differs has a red frame, what both share is grey</span></div>
      <div class="pane"><${Graph} key=${name(shown)} id=${shown.run_id} at=${shown.checkpoint} nodes=${nodes.data ? nodes.data.nodes : []} step=${null} version=${0} pick=${(address) => go(runAt(shown.run_id, shown.checkpoint, address))} differs=${differs} /></div>`}</div>`;
}

const text = (value) => (value == null ? html`<span class="quiet">none</span>` : `${value.text}${value.is_cut ? " …" : ""}`);
const said = (it) => Object.entries(it).filter(([name, value]) => !["node", "address"].includes(name) && typeof value === "string" && value).map(([, value]) => value.replaceAll("_", " ")).join(", ");

function Pick({ a, b }) {
  const [said, setSaid] = useState([a, b]);
  const onSubmit = (event) => { event.preventDefault(); ask({ a: said[0].trim(), b: said[1].trim() }); };
  return html`<form class="search" onSubmit=${onSubmit}>
    <input data-search aria-label="One run, as A17 or A17@3" placeholder="A17 or A17@3" required value=${said[0]} onInput=${(event) => setSaid([event.target.value, said[1]])} />
    <input aria-label="The other run" placeholder="A18 or A17@12" required value=${said[1]} onInput=${(event) => setSaid([said[0], event.target.value])} />
    <button class="main">Compare</button></form>`;
}
