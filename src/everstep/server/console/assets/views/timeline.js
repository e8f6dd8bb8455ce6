// When everything ran: a lane for each node, waits hatched, commits as ticks, takeovers as lines.

import { at as path, get, query } from "../api.js";
import { axis, ticks, timeOf, xOf } from "../axis.js";
import { html, Problem, useAsked, useEffect, useMemo, useRef, useState } from "../html.js";
import { clock, count, millis, rough, span, tick } from "../words.js";
import { plain, short } from "../addresses.js";

const LANE = 22;
const TOP = 26;
const NAMES = 170;
const MOST_LANES = 60;

export function Timeline({ id, run, at, step, pick, seek, version }) {
  const ref = useRef();
  const [width, setWidth] = useState(900);
  const [isUnfolded, setUnfolded] = useState(false);
  const [view, setView] = useState(null);
  const asked = query({ since: view && new Date(view[0]).toISOString(), until: view && new Date(view[1]).toISOString(), most: 300 });
  const told = useAsked((signal) => get(path`/runs/${id}/timeline` + asked, signal), `${id}${asked}:${version}`, true);
  const [first, setFirst] = useState(0);

  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(320, Math.floor(entry.contentRect.width))));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const onKey = (event) => event.key === "f" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, textarea, select, dialog") && setUnfolded((is) => !is);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const it = told.data;
  const the = useMemo(() => it && axisOf(it, width - NAMES - 12, !isUnfolded), [it, width, isUnfolded]);
  const body = () => {
    if (!it) return told.error ? html`<${Problem} error=${told.error} retry=${told.reload} />` : html`<p class="quiet pad">Loading …</p>`;
    const picked = step ? plain(step) : null;
    const lanes = it.lanes.slice(first, first + MOST_LANES);
    const high = TOP + lanes.length * LANE + 8;
    const x = (t) => NAMES + xOf(the, millis(t));
    const onSeek = (event) => {
      const place = event.clientX - event.currentTarget.getBoundingClientRect().left - NAMES;
      if (place < 0) return;
      const t = timeOf(the, place);
      let found = null;
      for (const one of it.commits) if (millis(one.at) <= t) found = one.sequence;
      seek(found === null ? (it.commits[0] ? it.commits[0].sequence : null) : found >= run.checkpoints && run.ended_at ? null : found);
    };
    const head = at != null && it.commits.find((one) => one.sequence >= at);
    return html`
      <div class="pane-tools">
        <button aria-pressed=${isUnfolded} onClick=${() => setUnfolded(!isUnfolded)}>${isUnfolded ? "Fold" : "Unfold"} what stood still (f)</button>
        ${view && html`<button onClick=${() => setView(null)}>All of it</button>`}
        <span class="quiet">${clock(it.began_at)} to ${it.is_live ? "now" : clock(it.until, it.began_at)}, ${span((millis(it.until) - millis(it.began_at)) / 1000)}</span>
        ${it.left_out ? html`<span class="quiet">${count(it.left_out)} checkpoints before are not shown</span>` : null}
        ${it.lanes.length > MOST_LANES && html`<span>lanes ${first + 1} to ${first + lanes.length} of ${it.lanes.length}
          <button disabled=${!first} onClick=${() => setFirst(Math.max(0, first - MOST_LANES))}>↑</button><button disabled=${first + MOST_LANES >= it.lanes.length} onClick=${() => setFirst(first + MOST_LANES)}>↓</button></span>`}
      </div>
      <svg class="lanes" role="group" aria-label="Timeline" width=${width} height=${high} onClick=${onSeek}>
        <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="6" /></pattern></defs>
        ${the.breaks.map((piece) => html`<g key=${piece.t0}><rect class="gap-band" x=${NAMES + piece.x0} y=${TOP - 12} width=${piece.x1 - piece.x0} height=${high - TOP + 12} />
          <text class="small" x=${NAMES + (piece.x0 + piece.x1) / 2} y="10" text-anchor="middle">${rough((piece.t1 - piece.t0) / 1000)}</text><title>nothing ran for ${span((piece.t1 - piece.t0) / 1000)}</title></g>`)}
        ${ticks(the).map((one) => html`<text key=${one.t} class="small" x=${NAMES + one.x} y="10">${tick(one, millis(it.began_at))}</text>`)}
        ${lanes.map((lane, k) => html`<${Lane} key=${lane.node} lane=${lane} y=${TOP + k * LANE} width=${width} x=${x} picked=${picked} step=${step} pick=${pick} until=${it.until} />`)}
        ${commitsOf(it, x).map((place) => html`<line key=${place} class="commit" x1=${place} x2=${place} y1=${TOP - 11} y2=${TOP - 5} />`)}
        ${it.marks.map((mark, k) => html`<g key=${k}><line class="mark" x1=${x(mark.at)} x2=${x(mark.at)} y1=${TOP - 12} y2=${high} /><text class="small" x=${x(mark.at) + 3} y=${TOP - 4}>${mark.text || mark.kind}</text><title>${`${mark.kind}${mark.worker ? ` by ${mark.worker}` : ""} at ${mark.at}`}</title></g>`)}
        ${head && html`<line class="playhead" x1=${x(head.at)} x2=${x(head.at)} y1="12" y2=${high} />`}
      </svg>`;
  };
  return html`<div ref=${ref}>${body()}</div>`;
}

/** What something ran in, for the folding of the rest; a wait is no work, and may be folded. */
function axisOf(it, width, folds) {
  const busy = [];
  for (const lane of it.lanes) {
    for (const one of lane.segments) if (one.kind !== "wait") busy.push([millis(one.from), millis(one.to ?? it.until)]);
    for (const one of lane.buckets) busy.push([millis(one.from), millis(one.to ?? it.until)]);
  }
  for (const one of it.marks) busy.push([millis(one.at), millis(one.at)]);
  return axis(millis(it.began_at), millis(it.until), busy, width, folds);
}

/** Commits that stand apart by a pixel or more. */
const commitsOf = (it, x) => [...new Set(it.commits.map((one) => Math.round(x(one.at))))];

function Lane({ lane, y, width, x, picked, step, pick, until }) {
  const isPicked = picked === plain(lane.node);
  const depth = lane.node.split("/").length - 1;
  const name = lane.node.split("/").pop();
  const go = (event, address) => { event.stopPropagation(); pick(address); };
  return html`<g>
    ${isPicked && html`<rect class="picked-lane" x="0" y=${y} width=${width} height=${LANE} />`}
    <line class="lane-line" x1="0" x2=${width} y1=${y + LANE} y2=${y + LANE} />
    <text class="lane-name node" x=${6 + depth * 10} y=${y + 15} tabindex="0" role="button" onClick=${(event) => go(event, lane.segments.length ? lane.segments[lane.segments.length - 1].address : lane.node)} onKeyDown=${(event) => event.key === "Enter" && go(event, lane.node)}>${name.length > 22 ? `${name.slice(0, 21)}…` : name}${lane.visits > 1 ? ` ×${lane.visits}` : ""}<title>${lane.node}</title></text>
    ${lane.buckets.map((one, k) => html`<${Bucket} key=${`b${k}`} one=${one} x=${x} y=${y} until=${until} pick=${go} />`)}
    ${lane.segments.map((one, k) => {
    const left = x(one.from);
    const wide = Math.max(2, x(one.to ?? until) - left);
    const status = one.kind === "wait" ? "halted" : one.kind === "retry_pause" ? "pause" : one.status || "running";
    return html`<rect key=${k} class=${`seg ${status} ${short(one.address) === step ? "picked" : ""}`} x=${left} y=${y + 4} width=${wide} height=${LANE - 8} rx="2" onClick=${(event) => go(event, one.address)}>
        <title>${`${one.address}: ${one.kind.replace("_", " ")}${one.attempt > 1 ? `, attempt ${one.attempt}` : ""}, ${one.status || "under way"}${one.count > 1 ? `, ${one.count} together` : ""}, ${one.to ? span((millis(one.to) - millis(one.from)) / 1000) : "goes on"}`}</title></rect>`;
  })}
  </g>`;
}

function Bucket({ one, x, y, until, pick }) {
  const left = x(one.from);
  const wide = Math.max(3, x(one.to ?? until) - left);
  return html`<rect class=${`seg ${one.status}`} x=${left} y=${y + 4} width=${wide} height=${LANE - 8} rx="2" onClick=${(event) => one.first_item && pick(event, one.first_item)}>
    <title>${`${count(one.count)} items ${one.status}${one.slowest ? `, the slowest took ${span(one.slowest)}` : ""}`}</title></rect>`;
}
