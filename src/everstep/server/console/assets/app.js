// The frame around every view: where one can go, who one is, whether what one sees is live.

import * as api from "./api.js";
import { Dialog, html, Link, Problem, render, useEffect, useState } from "./html.js";
import * as live from "./live.js";
import { begin, go, here, onMove } from "./route.js";

const VIEWS = [
  { at: /^\/$|^\/runs\/?$/, load: () => import("./views/runs.js"), tab: "runs" },
  { at: /^\/runs\/.+/, load: () => import("./views/run.js"), tab: "runs", isWide: true },
  { at: /^\/compare/, load: () => import("./views/compare.js"), tab: "runs", isWide: true },
  { at: /^\/waits/, load: () => import("./views/waits.js"), tab: "waits" },
  { at: /^\/flows\/.+/, load: () => import("./views/flow.js"), tab: "flows" },
  { at: /^\/flows/, load: () => import("./views/flows.js"), tab: "flows" },
  { at: /^\/workers/, load: () => import("./views/workers.js"), tab: "workers" },
  { at: /^\/schedules/, load: () => import("./views/schedules.js"), tab: "schedules" },
  { at: /^\/guards/, load: () => import("./views/guards.js"), tab: "guards" },
  { at: /^\/store/, load: () => import("./views/store.js"), tab: "store" },
  { at: /^\/audit/, load: () => import("./views/audit.js"), tab: "audit", role: "admin" },
];

const TABS = [["runs", "/", "Runs"], ["waits", "/waits", "Waits"], ["flows", "/flows", "Flows"], ["workers", "/workers", "Workers"],
  ["schedules", "/schedules", "Schedules"], ["guards", "/guards", "Guards"], ["store", "/store", "Store"], ["audit", "/audit", "Audit"]];

function App() {
  const [, setMoved] = useState(0);
  const [me, setMe] = useState(null);
  const [error, setError] = useState(null);
  const [isLive, setLive] = useState(false);
  const [isTroubled, setTroubled] = useState(false);
  const [help, setHelp] = useState(false);
  const [view, setView] = useState(null);
  const found = VIEWS.find((one) => one.at.test(here.path));

  useEffect(() => onMove(() => setMoved((n) => n + 1)), []);
  useEffect(() => {
    const look = () => { setLive(live.state.isLive); setTroubled(live.state.isTroubled); };
    look();
    return live.onChange(look);
  }, []);
  useEffect(() => {
    api.get("/me").then((told) => {
      if (!told.name) api.actAs(localStorage.getItem("everstep-as") || told.acts_as);
      setMe(told);
    }, setError);
  }, []);
  useEffect(() => {
    let isOver = false;
    if (found && (!view || view.found !== found))
      found.load().then((module) => isOver || setView({ found, module }), (problem) => setError({ message: "This page could not be loaded.", fix: `Load it again. (${problem.message})` }));
    return () => { isOver = true; };
  }, [found]);
  useEffect(() => {
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyped(event.target) || document.querySelector("dialog[open]")) return;
      if (event.key === "?") setHelp(true);
      else if (event.key === "/") {
        const box = document.querySelector("[data-search]");
        if (box) { event.preventDefault(); box.focus(); box.select(); } else go("/");
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const shown = view && view.found === found && me;
  return html`
    <a class="skip" href="#main">To the content</a>
    <header class="top">
      <${Link} to="/" class="brand">everstep<//>
      <nav aria-label="Views">${TABS.filter(([name]) => name !== "audit" || (me && me.role === "admin")).map(([name, to, label]) => html`
        <${Link} key=${name} to=${to} aria-current=${found && found.tab === name ? "page" : undefined}>${label}<//>`)}
      </nav>
      <span class="push"></span>
      <span class=${`live ${isLive ? "good" : "quiet"}`} role="status" title=${isLive ? "What changes is shown as it happens" : "Changes are not told: they are looked for when you come back to this tab"}>
        <i aria-hidden="true">●</i> ${isLive ? "live" : "not live"}</span>
      ${me && html`<${Who} me=${me} />`}
      ${me && me.can_log_out && html`<form method="post" action=${`${here.prefix}/logout`}><button class="plain">Log out</button></form>`}
      <button class="plain" aria-label="Keys" title="Keys (?)" onClick=${() => setHelp(true)}>?</button>
    </header>
    <main id="main" class=${found && found.isWide ? `wide ${found.tab === "runs" && /^\/runs\//.test(here.path) ? "run" : ""}` : ""} tabindex="-1">
      <${Problem} error=${error} />
      ${isTroubled && html`<div class="problem" role="alert"><strong>The store does not answer.</strong> What is shown may be old; this page goes on by itself.</div>`}
      ${found ? (shown ? html`<${view.module.default} me=${me} key=${found.tab} />` : !error && html`<p class="quiet pad">Loading …</p>`)
    : html`<p class="pad">There is no such page. <${Link} to="/">All runs<//></p>`}
    </main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

/** Who one is; where the service knows no name, one says it. */
function Who({ me }) {
  const [isOpen, setOpen] = useState(false);
  const [name, setName] = useState(me.name || localStorage.getItem("everstep-as") || me.acts_as);
  const keep = (event) => { event.preventDefault(); localStorage.setItem("everstep-as", name); api.actAs(name); setOpen(false); };
  return html`<button class="plain who" onClick=${() => setOpen(true)}>${name || me.role}${me.acts ? "" : " · looks only"}</button>
    ${isOpen && html`<${Dialog} title="Who you are" close=${() => setOpen(false)}>
      <p>Role: <strong>${me.role}</strong>${me.acts ? "" : ", and this console only looks: start it with --act to do something"}. everstep ${me.release}.</p>
      ${me.flows && html`<p>You see runs of ${me.flows.join(", ")}${me.tags ? ` with one of the tags ${me.tags.join(", ")}` : ""}.</p>`}
      ${me.name ? html`<p>Acts are recorded as done by <strong>${me.name}</strong>, whom the service knows.</p>`
    : html`<form onSubmit=${keep}><label>Acts are recorded as done by<input value=${name} onInput=${(event) => setName(event.target.value)} /></label><p class="quiet">The service does not check this name.</p><button class="main">Keep</button></form>`}<//>`}`;
}

const isTyped = (target) => /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable;

const KEYS = [["/", "the search box"], ["j, k", "next and previous line, step or node"], ["Enter", "open what is selected"], ["x", "select a run for an act"],
  ["Esc", "close; in a run back to live"], ["[, ]", "the checkpoint before and after"], ["t", "in a run: a table in the place of the graph"],
  ["f", "in a run: unfold the stretches in which nothing ran"], ["?", "these keys"]];

const Help = ({ close }) => html`<${Dialog} title="Keys" close=${close}>
  <dl class="keys">${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl><//>`;

const root = document.getElementById("app");
begin(root.dataset.prefix);
api.begin(root.dataset.prefix);
live.begin(root.dataset.prefix);
root.textContent = "";
render(html`<${App} />`, root);
