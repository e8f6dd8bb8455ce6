// Values as the server cuts them: a tree that asks for more as it is opened, and views of what has a form of its own.

import { address, at as path, get, isFile, pictureOf, query } from "../api.js";
import { html, Problem, useState } from "../html.js";
import { count, size } from "../words.js";

const STATES = {
  unreadable: "cannot be read here", encrypted: "encrypted, and the key is not here", redacted: "left out", removed: "removed by retention",
  withheld: "not shown to viewers", artifact: "kept aside",
};

/** One value; `from` is where more of it is asked for: `{run, at, name}`. */
export function Value({ cut, from, name, isOpen = true }) {
  if (cut == null) return html`<span class="quiet">nothing</span>`;
  if (cut.state && STATES[cut.state] && cut.state !== "artifact") return html`<span class="value"><${Key} name=${name} /><em class="quiet">${STATES[cut.state]}</em></span>`;
  if (cut.shape === "chat" && cut.children) return html`<div class="value"><${Key} name=${name} /><${Chat} cut=${cut} /></div>`;
  if (cut.shape === "table" && cut.children) return html`<div class="value"><${Key} name=${name} /><${Rows} cut=${cut} from=${from} /></div>`;
  if (cut.mime && cut.mime.startsWith("image/") && from && (!isFile() || cut.image)) return html`<div class="value"><${Key} name=${name} /><img alt=${`${name || "value"}, ${cut.mime}, ${size(cut.bytes)}`} src=${cut.image ? pictureOf(cut) : raw(from, cut)} /></div>`;
  if (cut.children) return html`<${Tree} cut=${cut} from=${from} name=${name} isOpen=${isOpen} />`;
  return html`<${Leaf} cut=${cut} from=${from} name=${name} />`;
}

const raw = (from, cut) => address(path`/runs/${from.run}/values/raw` + query({ at: from.at, name: from.name, version: from.version, pointer: cut.pointer }));

/** A part of a value, as far as it is asked for. */
const part = (from, pointer, rest = {}) => get(path`/runs/${from.run}/values` + query({ at: from.at, name: from.name, version: from.version, pointer, ...rest })).then((told) => told.values[from.name]);

const Key = ({ name }) => (name == null ? null : html`<span class="key">${name}: </span>`);

function Leaf({ cut, from, name }) {
  const [all, setAll] = useState(null);
  const [error, setError] = useState(null);
  const more = () => part(from, cut.pointer, { count: 100000 }).then(setAll, setError);
  const it = all || cut;
  const text = it.text ?? (it.value === undefined ? "" : typeof it.value === "string" ? it.value : JSON.stringify(it.value));
  return html`<span class="value"><${Key} name=${name} /><span class="text">${text}</span>
    ${it.is_cut && html` <span class="quiet">… ${it.bytes ? size(it.bytes) : ""}</span>`}
    ${it.is_cut && !all && from && html` <button class="plain" onClick=${more}>more</button>`}
    ${(it.is_cut || it.state === "artifact") && from && !isFile() && html` <a href=${raw(from, cut)} download>save</a>`}
    <${Problem} error=${error} /></span>`;
}

function Tree({ cut, from, name, isOpen }) {
  const [more, setMore] = useState([]);
  const [error, setError] = useState(null);
  const kids = [...cut.children, ...more];
  const isList = /list|tuple|array|set/.test(cut.type || "");
  const goOn = () => part(from, cut.pointer, { from: kids.length, count: 100 }).then((told) => setMore([...more, ...(told.children || [])]), setError);
  return html`<div class="value"><details open=${isOpen && kids.length <= 30}><summary><${Key} name=${name} /><span class="quiet">${cut.type} ${cut.count != null ? `of ${count(cut.count)}` : ""}</span></summary>
    <div class="kids">${kids.map((kid, k) => html`<div key=${k}><${Value} cut=${kid.cut} from=${from} name=${isList ? k : kid.key} isOpen=${false} /></div>`)}
      ${cut.count != null && kids.length < cut.count && from && html`<button class="plain" onClick=${goOn}>${count(cut.count - kids.length)} more</button>`}
      <${Problem} error=${error} /></div></details></div>`;
}

const field = (cut, key) => {
  const found = (cut.children || []).find((kid) => kid.key === key);
  return found ? found.cut.text ?? found.cut.value ?? "" : "";
};

const Chat = ({ cut }) => html`<div class="chat">${cut.children.map(({ cut: one }, k) => html`<div key=${k} class=${String(field(one, "role"))}><b>${String(field(one, "role"))}</b>${String(field(one, "content"))}</div>`)}</div>`;

/** A list of things alike; what the server cut away of the rows is asked for. */
function Rows({ cut, from }) {
  const whole = cut.children.filter(({ cut: row }) => row.children && row.children.length);
  const [more, setMore] = useState([]);
  const [error, setError] = useState(null);
  const rows = [...whole, ...more];
  const goOn = () => Promise.all([...Array(Math.min(20, cut.count - rows.length))].map((_, k) => part(from, `${cut.pointer || ""}/${rows.length + k}`))).then((told) => setMore([...more, ...told.map((one) => ({ cut: one }))]), setError);
  const names = (cut.columns || [...new Set(rows.flatMap(({ cut: row }) => (row.children || []).map((kid) => kid.key)))]).slice(0, 20);
  return html`<div class="scroll"><table><thead><tr>${names.map((one) => html`<th>${one}</th>`)}</tr></thead>
    <tbody>${rows.map(({ cut: row }, k) => html`<tr key=${k}>${names.map((one) => html`<td>${String(field(row, one))}</td>`)}</tr>`)}</tbody></table>
    ${cut.count > rows.length && (from ? html`<button class="link" onClick=${goOn}>${count(cut.count - rows.length)} rows more</button>` : html`<p class="quiet">${count(cut.count - rows.length)} rows more</p>`)}<${Problem} error=${error} /></div>`;
}
