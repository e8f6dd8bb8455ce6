// Two runs, or two moments of one: where they part, which values differ, and both graphs coloured by that.

import { at as path, get, query } from "../api.js";
import { Badge, html, Link, Problem, useAsked, useEffect, useMemo, useState } from "../html.js";
import { ask, go, here, runAt } from "../route.js";
import { Graph } from "./graph.js";
import { plain, short } from "../addresses.js";

const name = (one) => `${one.run_id}@${one.checkpoint}`;

export default function Compare() {
  const a = here.query.get("a") || "";
  const b = here.query.get("b") || "";
  const told = useAsked((signal) => (a && b ? get(`/compare${query({ a, b })}`, signal) : null), `${a}|${b}`);
  useEffect(() => { document.title = a && b ? `${a} and ${b} · everstep` : "Compare · everstep"; }, [a, b]);
  const it = told.data;
  const differs = useMemo(() => new Set((it ? it.nodes : []).map((one) => plain(one.node))), [it]);
  return html`<div class="pad"><h1>Compare</h1><${Pick} key=${`${a}|${b}`} a=${a} b=${b} />
    ${!(a && b) && html`<p class="quiet">Two runs, <code>A17</code> and <code>A18</code>, or two moments of one, <code>A17@3</code> and <code>A17@12</code>. Or select two in the <${Link} to="/">list of runs<//>; a run has links to compare it with the one before, its parent and its forks.</p>`}
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
      <p class="quiet">What differs has a red frame; what both share is grey.</p>
      <div class="beside">${[it.before, it.after].map((one) => html`<${Side} key=${name(one)} it=${one} differs=${differs} />`)}</div>`}</div>`;
}

function Side({ it, differs }) {
  const nodes = useAsked((signal) => get(path`/runs/${name(it)}/nodes` + query({ newest: 1000 }), signal), name(it), true);
  return html`<section aria-label=${`Graph of ${name(it)}`}><h2>${name(it)}</h2><div class="scroll"><${Graph} id=${it.run_id} at=${it.checkpoint} nodes=${nodes.data ? nodes.data.nodes : []} step=${null} version=${0} pick=${(address) => go(runAt(it.run_id, it.checkpoint, address))} differs=${differs} /></div></section>`;
}

/** A value as it is written; of a time and the like, which JSON has no form for, what it says. */
function text(value) {
  if (value == null) return html`<span class="quiet">none</span>`;
  const [, kind, word] = /^\{"\$type": "(\w+)", "text": ("(?:[^"\\]|\\.)*")\}$/.exec(value.text) || [];
  return kind ? html`<span title=${kind}>${JSON.parse(word)}</span>` : `${value.text}${value.is_cut ? " …" : ""}`;
}
const said = (it) => Object.entries(it).filter(([key, value]) => !["node", "address"].includes(key) && typeof value === "string" && value).map(([, value]) => value.replaceAll("_", " ")).join(", ");

function Pick({ a, b }) {
  const [both, setBoth] = useState([a, b]);
  const onSubmit = (event) => { event.preventDefault(); ask({ a: both[0].trim(), b: both[1].trim() }); };
  return html`<form class="search" onSubmit=${onSubmit}>
    <input data-search aria-label="One run, as A17 or A17@3" placeholder="A17 or A17@3" required value=${both[0]} onInput=${(event) => setBoth([event.target.value, both[1]])} />
    <input aria-label="The other run" placeholder="A18 or A17@12" required value=${both[1]} onInput=${(event) => setBoth([both[0], event.target.value])} />
    <button class="main">Compare</button></form>`;
}
