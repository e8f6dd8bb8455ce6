// A fork: from the playhead, with some values edited, and what would run again because of that.

import { act, at as path, get, query } from "../api.js";
import { Dialog, html, Problem, useAsked, useDoing, useState } from "../html.js";
import { go, runAt } from "../route.js";
import { many } from "../words.js";

const parsed = (text) => { try { return { value: JSON.parse(text) }; } catch { return null; } };

export function Fork({ run, at, close, reload }) {
  const [edits, setEdits] = useState({});
  const [again, setAgain] = useState(false);
  const [comment, setComment] = useState("");
  const { error, isBusy, doIt } = useDoing(reload, close, (told) => go(runAt(told.run_id)));
  const state = useAsked((signal) => get(path`/runs/${run.run_id}/state` + query({ at }), signal), `${run.run_id}@${at}`);
  const first = useAsked((signal) => get(path`/runs/${run.run_id}/state?at=1`, signal), run.run_id);
  const isInput = (name) => Boolean(first.data && name in first.data.values);
  const names = Object.keys(edits);
  const asked = { at, input: names.filter(isInput), state: names.filter((name) => !isInput(name)), choose_again: again ? "true" : null };
  const would = useAsked((signal) => get(path`/runs/${run.run_id}/fork` + query(asked), signal), JSON.stringify([asked, Boolean(first.data)]), true);
  const wrong = names.filter((name) => !parsed(edits[name]));
  const part = (which) => Object.fromEntries(names.filter((name) => isInput(name) === which).map((name) => [name, parsed(edits[name]).value]));
  const onSubmit = (event) => {
    event.preventDefault();
    doIt(() => act(path`/runs/${run.run_id}/fork`, { at: at ?? undefined, inputs: part(true), state: part(false), choose_again: again || undefined, comment: comment || undefined }));
  };
  const values = state.data ? Object.entries(state.data.values) : [];
  const edit = (name, value) => setEdits({ ...edits, [name]: value });
  const leave = (name) => setEdits(Object.fromEntries(Object.entries(edits).filter(([one]) => one !== name)));
  return html`<${Dialog} title=${`Fork ${run.run_id} from ${at == null ? "where it stands" : `checkpoint ${at}`}`} close=${close}><form onSubmit=${onSubmit}>
    <p>A new run goes on from there; ${run.run_id} stays as it is.</p>
    <${Would} told=${would} />
    <${Problem} error=${state.error} />
    <h3>Edited values</h3>
    ${names.map((name) => html`<label key=${name}>${name} <button type="button" class="plain" onClick=${() => leave(name)}>as it was</button>
      <textarea aria-label=${name} value=${edits[name]} onInput=${(event) => edit(name, event.target.value)} spellcheck=${false}></textarea>${wrong.includes(name) && html`<span class="bad">This is not JSON yet.</span>`}</label>`)}
    <select aria-label="Edit a value" value="" onChange=${(event) => { const name = event.target.value; if (name) edit(name, JSON.stringify(state.data.values[name], null, 2) ?? "null"); event.target.value = ""; }}>
      <option value="">edit a value …</option>${values.filter(([name]) => !(name in edits) && !name.startsWith("@")).map(([name]) => html`<option value=${name}>${name}${isInput(name) ? ", an input" : ""}</option>`)}</select>
    <label class="row"><input type="checkbox" checked=${again} onChange=${() => setAgain(!again)} /> gates that nothing has acted on yet choose again</label>
    <label>Comment, kept in the audit log<input value=${comment} onInput=${(event) => setComment(event.target.value)} /></label>
    <${Problem} error=${error} />
    <div class="row"><button class="main" disabled=${isBusy || wrong.length > 0}>Fork</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

function Would({ told }) {
  if (!told.data) return html`<${Problem} error=${told.error} />`;
  const it = told.data;
  const effects = it.again.filter((one) => one.had_key);
  return html`<div class="note"><${Problem} error=${told.error} />
    <p><strong>It would begin with</strong> ${it.starts.length ? it.starts.join(", ") : "nothing: all is done"}. ${many(it.kept, "node")} ${it.kept === 1 ? "keeps" : "keep"} what was written.</p>
    ${it.again.length > 0 && html`<p>Once more: ${it.again.map((one) => one.node).join(", ")}.</p>`}
    ${effects.length > 0 && html`<p class="bad">${effects.map((one) => one.node).join(", ")} may do again what was done to the world: a fork has idempotency keys of its own.</p>`}
    ${it.asks.length > 0 && html`<p>Asks once more: ${it.asks.join(", ")}.</p>`}</div>`;
}
