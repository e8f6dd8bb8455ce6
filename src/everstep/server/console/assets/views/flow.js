// One flow: its drawing, what a crash would cost, what was found in it, its runs by version, how long they take.

import { act, at as path, get, query } from "../api.js";
import { Badge, html, Link, Problem, useAsked, useEffect } from "../html.js";
import { here } from "../route.js";
import { count, span } from "../words.js";
import { Picture } from "./graph.js";

export default function FlowView() {
  const name = decodeURIComponent(here.path.split("/")[2]);
  const told = useAsked((signal) => get(path`/flows/${name}`, signal), name);
  const took = useAsked((signal) => get(`/durations${query({ flow: name })}`, signal), `d${name}`);
  useEffect(() => { document.title = `${name} · everstep`; }, [name]);
  const it = told.data;
  const one = took.data && took.data.flows.find((flow) => flow.flow === name);
  return html`<div class="pad"><h1>${name}</h1><${Problem} error=${told.error} />
    ${it && html`
      <p>${Object.entries(it.runs || {}).map(([status, n]) => html`<${Link} class="plain" to=${`/?flow=${encodeURIComponent(name)}&status=${status}`}><${Badge} status=${status} /> ${count(n)}<//> `)}
        ${Object.entries(it.versions || {}).map(([version, n]) => html`<span class="tag">version ${version}: ${count(n)}</span> `)} <span class="quiet">${it.workers ? `${it.workers} workers take it` : "no live worker takes it"}</span></p>
      ${it.report ? html`<div class="note">${it.report.headline || ""}</div>` : html`<p class="quiet">What a crash would cost, and what is odd about it, needs its code${it.asks ? html`: <code>${it.asks}</code>` : "."}</p>`}
      ${it.findings && it.findings.length > 0 && html`<h2>Findings</h2><ul>${it.findings.map((found, k) => html`<li key=${k} class=${found.severity === "error" ? "bad" : ""}>${found.message} <span class="quiet">${found.fix || ""}</span></li>`)}</ul>`}
      ${it.drawing && html`<h2>Graph</h2><div class="pane"><${Picture} it=${it.drawing} /></div>`}`}
    ${one && html`<h2>How long it takes</h2><p class="quiet">Of the ${count(one.runs)} newest that ended.</p><table><thead><tr><th></th><th class="right">p50</th><th class="right">p90</th><th class="right">p99</th><th class="right">longest</th></tr></thead>
      <tbody><${Spread} name="the whole run" it=${one.total} /><${Spread} name="running" it=${one.running} />${one.nodes.map((node) => html`<${Spread} key=${node.node} name=${`${node.node}${node.failures ? `, ${node.failures} failed` : ""}`} it=${node.seconds} />`)}</tbody></table>`}</div>`;
}

const Spread = ({ name, it }) => (it ? html`<tr><td>${name}</td>${[it.p50, it.p90, it.p99, it.max].map((one) => html`<td class="right">${span(one)}</td>`)}</tr>` : null);
