// One flow: its drawing, what a crash would cost, what was found in it, its runs by version, how long they take.

import { act, at as path, get, query } from "../api.js";
import { may } from "../roles.js";
import { Badge, html, Link, Problem, useAsked, useDoing, useEffect } from "../html.js";
import { follow } from "../live.js";
import { here, runAt } from "../route.js";
import { byStatus, count, many, span } from "../words.js";
import { Picture } from "./graph.js";

export default function FlowView({ me }) {
  const name = decodeURIComponent(here.path.split("/")[2]);
  const told = useAsked((signal) => get(path`/flows/${name}`, signal), name);
  const took = useAsked((signal) => get(`/durations${query({ flow: name })}`, signal), `d${name}`, true);
  const asked = (what) => useAsked((signal) => get(path`/flows/${name}/` + what, signal), `${what}${name}`);
  const [report, findings, compat] = [asked("report"), asked("findings"), asked("compat")];
  useEffect(() => { document.title = `${name} · everstep`; return follow(told.reload); }, [name]);
  const it = told.data;
  const one = took.data && took.data.flows.find((flow) => flow.flow === name);
  const error = report.error || findings.error || compat.error;
  return html`<div class="pad"><h1>${name}</h1><${Problem} error=${told.error} />
    ${it && html`
      <div class="row">${byStatus(it.runs).map(([status, n]) => html`<${Link} class="plain" to=${`/?flow=${encodeURIComponent(name)}&status=${status}`}><${Badge} status=${status} /> ${count(n)}<//>`)}
        ${Object.entries(it.versions || {}).map(([version, n]) => html`<span class="tag">version ${version}: ${many(n, "run")}</span>`)} <span class="quiet">${it.workers ? `${many(it.workers, "worker takes", "workers take")} it` : "no live worker takes it"}</span>
        <span class="push"></span>${may(me, "operator") && html`<${Pause} name=${name} />`}</div>
      <div class="beside">
        <section>${it.drawing ? html`<h2>Graph</h2><div class="scroll"><${Picture} it=${it.drawing} /></div>` : html`<p class="quiet">Only a worker has it, and its structure is not in the store yet.</p>`}</section>
        <div>
          ${error && html`<div class="note"><strong>What a crash would cost, what is odd about it, and which runs can go on with it takes its code.</strong> ${error.message} ${error.fix}</div>`}
          ${(report.isLoading || compat.isLoading) && !error && html`<p class="quiet">Asking who has its code …</p>`}
          ${report.data && html`<${Report} it=${report.data} />`}
          ${findings.data && html`<${Findings} it=${findings.data} />`}
          ${compat.data && html`<${Compat} it=${compat.data} />`}
        </div></div>`}
    <${Problem} error=${took.error} />
    ${one && html`<h2>How long it takes</h2><p class="quiet">Of the ${count(one.runs)} newest that ended.</p><table><thead><tr><th>Node</th><th class="right">p50</th><th class="right">p90</th><th class="right">p99</th><th class="right">longest</th></tr></thead>
      <tbody><${Spread} name="the whole run" it=${one.total} /><${Spread} name="of it, not waiting" it=${one.running} />${one.nodes.map((node) => html`<${Spread} key=${node.node} name=${`${node.node}${node.failures ? `, ${node.failures} failed` : ""}`} it=${node.seconds} />`)}</tbody></table>`}</div>`;
}

const Spread = ({ name, it }) => (it ? html`<tr><td>${name}</td>${[it.p50, it.p90, it.p99, it.max].map((one) => html`<td class="right">${span(one)}</td>`)}</tr>` : null);

/** Hold all runs of a flow, or let them go on. */
function Pause({ name }) {
  const held = useAsked((signal) => get("/pauses?runs=false", signal), name, true);
  const { error, isBusy, doIt } = useDoing(held.reload, () => {});
  const is = held.data && held.data.pauses.some((one) => one.flow === name && !one.group);
  return html`<${Problem} error=${error} /><button disabled=${isBusy} title=${is ? "Workers take its runs again" : "Nothing of its runs starts until they are let go on"} onClick=${() => doIt(() => act(is ? "/pauses/lift" : "/pauses", { flow: name }))}>${is ? "Let it go on" : "Pause all its runs"}</button>`;
}

function Report({ it }) {
  const list = (title, names) => names.length > 0 && html`<dt class="quiet">${title}</dt><dd>${names.join(", ")}</dd>`;
  return html`<h2>What a crash would cost</h2>
    <p>Mode <strong>${it.mode}</strong>: ${Math.round(it.coverage * 100)} % of its nodes can go on behind a commit.</p>
    <dl class="keys">${list("halt for people or clocks", it.halt_nodes)}${list("costly", it.expensive_nodes)}${list("destructive", it.destructive_nodes)}
      ${list("budgets", it.budgets.map((one) => `${one.limit ?? one.amount ?? ""} ${one.name}`))}${list("breakers", it.breakers.map((one) => one.name))}</dl>
    ${it.incompatible_nodes.length > 0 && html`<ul>${it.incompatible_nodes.map((node) => html`<li class="bad">${node}: ${it.reasons[node] || "cannot be resumed"}</li>`)}</ul>`}`;
}

function Findings({ it }) {
  return html`<h2>Findings</h2>${it.diagnostics.length ? html`<ul class="findings">${it.diagnostics.map((one) => html`<li><strong class=${one.severity === "error" ? "bad" : ""}>${one.code}</strong> ${one.message} <span class="quiet">${one.fix}</span></li>`)}</ul>` : html`<p class="good">✓ Nothing is wrong or odd.</p>`}`;
}

function Compat({ it }) {
  const all = Object.entries(it.runs).filter(([, n]) => n);
  return html`<h2>Can unfinished runs go on with it?</h2>
    ${all.length ? html`<p>${all.map(([verdict, n]) => html`<span class=${verdict === "continues" ? "good" : "bad"}>${count(n)} ${verdict.replaceAll("_", " ")}</span> `)}${it.is_whole ? "" : html`<span class="quiet">of the newest</span>`}</p>` : html`<p class="quiet">There are none.</p>`}
    <ul class="findings">${it.groups.filter((one) => one.reason || one.warnings.length).map((one) => html`<li>${one.reason} <span class="quiet">${one.fix} ${one.warnings.join(" ")}</span> ${one.runs.slice(0, 5).map((id) => html`<${Link} to=${runAt(id)}>${id}<//> `)}${one.runs.length > 5 ? `and ${one.runs.length - 5} more` : ""}</li>`)}</ul>`;
}
