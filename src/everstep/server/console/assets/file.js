// A run in a file of its own: the same views over answers that the file brings with it.

import * as api from "./api.js";
import { html, Problem, render, useEffect, useState } from "./html.js";
import { beginInFile, here, onMove, runAt } from "./route.js";
import Compare from "./views/compare.js";
import Run from "./views/run.js";
import { moment } from "./words.js";

const snapshot = JSON.parse(document.getElementById("snapshot").textContent);
const ME = { name: "", role: "reader", acts: false, flows: null, tags: null };

function App() {
  const [, setMoved] = useState(0);
  useEffect(() => onMove(() => setMoved((n) => n + 1)), []);
  const cut = Object.entries(snapshot.cut).filter(([, n]) => n);
  return html`<header class="top"><span class="brand">everstep</span><span class="quiet">run ${snapshot.run_id}, as it was ${moment(snapshot.made_at)}</span>
      ${cut.length > 0 && html`<span class="bad">too large for one file: without ${cut.map(([what, n]) => `${n} ${what}`).join(", ")}</span>`}
      ${snapshot.left_out > 0 && html`<span class="quiet">${snapshot.left_out} values left out</span>`}</header>
    <main id="main" class="wide run">${/^\/runs\/./.test(here.path) ? html`<${Run} me=${ME} />` : /^\/compare/.test(here.path) ? html`<${Compare} />` : html`<${Problem} error=${{ message: "This is not in the file." }} />`}</main>`;
}

// Values are in the file once, and answers name them by their number.
for (const [path, told] of Object.entries(snapshot.answers))
  if (/\/values(\?|$)/.test(path)) for (const name of Object.keys(told.values)) told.values[name] = snapshot.values[told.values[name]];
api.keep(snapshot.answers, snapshot.images);
beginInFile(runAt(snapshot.run_id));
render(html`<${App} />`, document.getElementById("app"));
