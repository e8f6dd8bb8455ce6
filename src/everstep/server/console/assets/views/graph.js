// The declared graph with what the run did in it. Where nodes stand depends on the flow alone, so nothing moves.

import { at as path, get, query } from "../api.js";
import { html, Problem, useAsked, useEffect, useMemo, useRef, useState } from "../html.js";
import { here } from "../route.js";
import { span } from "../words.js";
import { addressOf, plain, shownOf } from "../addresses.js";

const EDGE = 14;
const MARKS = { completed: "✓", failed: "✗", running: "▶", halted: "◔", cancelled: "⊘", skipped: "↷" };

export function Graph({ id, at, nodes, step, pick, seek, version, toTable, differs }) {
  const [opened, setOpened] = useState(null);
  const [around, setAround] = useState(null);
  const asked = `${opened === null ? "" : `?open=${opened.map(encodeURIComponent).join(",")}`}${around ? `${opened === null ? "?" : "&"}around=${encodeURIComponent(around)}` : ""}`;
  const drawing = useAsked((signal) => get(path`/runs/${id}/drawing` + asked, signal), `${id}${asked}`, true);
  const place = at == null ? id : `${id}@${at}`;
  const edges = useAsked((signal) => get(path`/runs/${id}/edges` + query({ at }), signal), place, true, version);
  const byPath = useMemo(() => new Map((nodes || []).map((one) => [one.node, one])), [nodes]);
  const taken = useMemo(() => new Map((edges.data ? edges.data.edges : []).map((one) => [`${one.source}\n${one.target}`, one])), [edges.data]);
  const [zoom, setZoom] = useState(null);
  const pane = useRef();
  const rounds = useRef({});
  useEffect(() => {
    if (drawing.data && zoom === null && pane.current) {
      const { width, height } = frameOf(drawing.data, 1);
      const box = pane.current.parentElement;
      setZoom(Math.max(0.75, Math.min(1, (box.clientWidth - 4) / width, (Math.max(300, box.clientHeight) - 44) / height)));
    }
  }, [Boolean(drawing.data)]);
  const picked = useMemo(() => (step && drawing.data ? shownOf(step, new Set([...drawing.data.nodes, ...drawing.data.groups].map((one) => one.path))) : null), [step, drawing.data]);
  useEffect(() => {
    // Of a graph that is too large, those near what is selected are drawn.
    if (step && drawing.data && drawing.data.is_cut && ![...drawing.data.nodes, ...drawing.data.groups].some((one) => one.path === picked)) setAround(plain(step));
  }, [step, drawing.data]);
  useEffect(() => {
    const box = picked && seek && pane.current && pane.current.parentElement.querySelector(".node.picked, .group.picked");
    if (!box) return undefined;
    // The pane becomes smaller as the timeline below it comes.
    const watch = new ResizeObserver(() => into(box, pane.current));
    watch.observe(pane.current.parentElement);
    return () => watch.disconnect();
  }, [picked, zoom, drawing.data]);
  if (!drawing.data) return html`<${Problem} error=${drawing.error} retry=${drawing.reload} />${!drawing.error && html`<p class="quiet pad">Drawing …</p>`}`;
  const it = drawing.data;
  // At a checkpoint only rounds until there are told: those that were seen before stay.
  for (const loop of edges.data ? edges.data.loops : []) if (loop.rounds >= ((rounds.current[loop.node] || {}).rounds || 2)) rounds.current[loop.node] = loop;
  const loops = Object.values(rounds.current);
  const toggle = (node) => {
    const shown = it.groups.map((one) => one.path);
    setOpened(node.is_folded ? [...shown, node.path] : shown.filter((one) => one !== node.path));
  };
  return html`
    <div class="pane-tools" ref=${pane}>
      <button onClick=${() => setZoom((n) => Math.min(3, n * 1.25))} aria-label="Larger">+</button>
      <button onClick=${() => setZoom((n) => Math.max(0.2, n / 1.25))} aria-label="Smaller">−</button>
      ${toTable && html`<button onClick=${toTable}>Table (t)</button>`}
      ${seek && loops.map((loop) => html`<${Rounds} key=${loop.node} loop=${loop} at=${at} seek=${seek} />`)}
      ${edges.data && edges.data.left_out > 0 && html`<span class="quiet">counts of the first ${edges.data.left_out} checkpoints are estimated</span>`}
      ${it.is_cut && html`<span class="quiet">${it.shown} of ${it.total} nodes: those near ${it.centre}</span>`}
      ${it.is_cut && step && plain(step) !== it.centre && html`<button onClick=${() => setAround(plain(step))}>Show those near ${plain(step)}</button>`}
    </div>
    <${Problem} error=${edges.error && edges.error.status !== 404 ? edges.error : null} />
    <svg role="group" aria-label=${`Graph of flow ${it.flow}`} data-sequence=${edges.data && edges.data.sequence} ...${frameOf(it, zoom || 1)}>
      <${Tip} />
      ${it.groups.map((group) => html`<g key=${group.path}><rect class=${`group ${picked === group.path ? "picked" : ""}`} x=${group.x} y=${group.y} width=${group.width} height=${group.height} rx="8" />
        <text class="small node" x=${group.x + 8} y=${group.y + 13} tabindex="0" role="button" aria-label=${`Fold ${group.path}`} onClick=${() => toggle(group)} onKeyDown=${(event) => pressed(event, () => toggle(group))}>▾ ${group.path}</text></g>`)}
      ${it.edges.map((edge) => html`<${Edge} key=${`${edge.source}>${edge.target}>${edge.label || ""}`} edge=${edge} taken=${taken.get(`${edge.source}\n${edge.target}`)} differs=${differs && differs.has(edge.target)} />`)}
      ${it.nodes.map((node) => html`<${Box} key=${node.path} node=${node} told=${byPath.get(node.path)} isPicked=${picked === node.path} pick=${pick} toggle=${toggle} differs=${differs} />`)}
    </svg>`;
}

/** A key that presses a button presses what is drawn as one. */
function pressed(event, what) {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  event.stopPropagation();
  what();
}

/** Scroll what is selected into sight, within its pane alone. */
function into(box, tools) {
  const around = tools.parentElement;
  const [is, may] = [box.getBoundingClientRect(), around.getBoundingClientRect()];
  const top = may.top + tools.offsetHeight;
  if (is.top < top || is.bottom > may.bottom) around.scrollTop += (is.top + is.bottom) / 2 - (top + may.bottom) / 2;
  if (is.left < may.left || is.right > may.right) around.scrollLeft += (is.left + is.right) / 2 - (may.left + may.right) / 2;
}

/** A drawing alone, of a flow that no run is looked at of. */
export function Picture({ it }) {
  return html`<svg role="group" aria-label="Graph" ...${frameOf(it, 1)}>
    <${Tip} />
    ${it.groups.map((group) => html`<g key=${group.path}><rect class="group" x=${group.x} y=${group.y} width=${group.width} height=${group.height} rx="8" /><text class="small" x=${group.x + 8} y=${group.y + 13}>${group.path}</text></g>`)}
    ${it.edges.map((edge) => html`<${Edge} key=${`${edge.source}>${edge.target}>${edge.label || ""}`} edge=${edge} taken=${PLAIN} />`)}
    ${it.nodes.map((node) => html`<${Box} key=${node.path} node=${node} isPlain />`)}</svg>`;
}

/** An edge of which no one asks whether it was taken. */
const PLAIN = { times: 0 };
const TIPS = ["pale", "taken", "chosen", "differs"];
const Tip = () => html`<defs>${TIPS.map((kind) => html`<marker id=${`tip-${kind}`} viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" orient="auto-start-reverse"><path class=${`tip ${kind}`} d="M0 0 8 4 0 8z" /></marker>`)}</defs>`;

/** A graph's size, with room for the labels of edges that run at its side. */
function frameOf(it, zoom) {
  const right = Math.max(it.width, ...it.edges.filter((edge) => edge.kind === "choice").map((edge) => edge.points[Math.floor(edge.points.length / 2)][0] + 20 + 7 * (edge.label || "").length));
  const [width, height] = [right + 2 * EDGE, it.height + 2 * EDGE];
  return { width: width * zoom, height: height * zoom, viewBox: `${-EDGE} ${-EDGE} ${width} ${height}` };
}

/** The rounds of a loop, one after the other: the run as it was at the end of each. */
function Rounds({ loop, at, seek }) {
  const { began, rounds } = loop;
  let now = began.length - 1;
  if (at != null) while (now > 0 && began[now] > at) now -= 1;
  const show = (k) => seek(k >= began.length - 1 ? null : began[k + 1] - 1);
  const number = rounds - began.length + now + 1;
  return html`<span class="rounds">round <button aria-label=${`Round of ${loop.node} before`} disabled=${now <= 0} onClick=${() => show(now - 1)}>‹</button> ${number} of ${rounds} <button aria-label=${`Round of ${loop.node} after`} disabled=${now >= began.length - 1} onClick=${() => show(now + 1)}>›</button> <span class="quiet">of ${loop.node}</span></span>`;
}

function Edge({ edge, taken, differs }) {
  const points = edge.points;
  const line = lineOf(points);
  const isChosen = taken && taken.is_newest && edge.kind === "choice";
  const mid = points[Math.floor(points.length / 2)];
  return html`<g><path class=${`edge ${edge.kind} ${taken ? "taken" : ""} ${isChosen ? "chosen" : ""} ${differs ? "differs" : ""}`} d=${line} marker-end=${`url(#tip-${differs ? "differs" : isChosen ? "chosen" : taken ? "taken" : "pale"})`} stroke-dasharray=${edge.is_back ? "5 3" : undefined}>
    <title>${`${edge.source} → ${edge.target}${edge.label ? `: ${edge.label}` : ""}${taken === PLAIN ? "" : taken ? `, taken ${taken.times} times` : ", never taken"}`}</title></path>
    ${edge.kind === "choice" && html`<text class="small" x=${mid[0] + 5} y=${mid[1] - 2}>${edge.label}${taken && taken.times > 1 ? ` ×${taken.times}` : ""}</text>`}</g>`;
}

/** A line through points: straight along an axis, and as a curve with upright ends between others. */
function lineOf(points) {
  let text = `M${points[0].join(" ")}`;
  for (let k = 1; k < points.length; k += 1) {
    const [x0, y0] = points[k - 1];
    const [x, y] = points[k];
    text += x0 === x || y0 === y ? `L${x} ${y}` : `C${x0} ${(y0 + y) / 2} ${x} ${(y0 + y) / 2} ${x} ${y}`;
  }
  return text;
}

function Box({ node, told, isPicked, pick, toggle, differs, isPlain }) {
  const status = told && told.status ? told.status : isPlain ? "plain" : "never";
  const difference = differs ? (differs.has(node.path) ? "differs" : "shared") : "";
  const go = () => pick(told ? addressOf(told) : node.path);
  const said = [told && told.visits > 1 ? `×${told.visits}` : "", told && told.attempts > told.visits ? "↻" : "", told && told.items ? `${told.items.completed}/${told.items.count}${told.items.failed ? ` ✗${told.items.failed}` : ""}` : told && told.seconds ? span(told.seconds) : ""].filter(Boolean).join("  ");
  const shape = { gate: cut(node), wait: null, join: null }[node.kind];
  const can = isPlain ? { role: "img", "aria-label": `${node.path}, ${node.kind}` } : {
    tabindex: 0,
    role: "button",
    "aria-pressed": isPicked,
    "aria-label": `${node.path}, ${node.kind}, ${status === "never" ? "did not run" : status}${said ? `, ${said}` : ""}`,
    onClick: go,
    onDblClick: () => node.inside && toggle(node),
    onKeyDown: (event) => pressed(event, () => (isPicked && node.inside ? toggle(node) : go())),
  };
  return html`<g class=${`node ${status} ${difference} ${isPicked ? "picked" : ""}`} ...${can}>
    ${shape ? html`<path class="box" d=${shape} />` : html`<rect class="box" x=${node.x} y=${node.y} width=${node.width} height=${node.height} rx=${node.kind === "wait" ? node.height / 2 : 6} />`}
    ${(node.kind === "map" || node.is_folded) && html`<rect class="box" x=${node.x + 4} y=${node.y + 4} width=${node.width - 8} height=${node.height - 8} rx="4" fill-opacity="0" />`}
    <text x=${node.x + node.width / 2} y=${node.y + (said ? node.height / 2 - 2 : node.height / 2 + 4)} text-anchor="middle">${MARKS[status] ? `${MARKS[status]} ` : ""}${node.name}</text>
    ${said && html`<text class="small" x=${node.x + node.width / 2} y=${node.y + node.height / 2 + 12} text-anchor="middle">${said}</text>`}
    ${node.is_folded && html`<text class="small" x=${node.x + node.width - 8} y=${node.y + 15} text-anchor="end" onClick=${(event) => { event.stopPropagation(); if (!isPlain) toggle(node); }}>▸ ${node.inside}</text>`}
    <title>${`${node.path} (${node.kind})${node.is_folded ? `: ${node.inside} nodes inside${isPlain ? "" : ", double-click, or press Enter twice, to open"}` : ""}`}</title>
  </g>`;
}

const cut = ({ x, y, width, height }) => `M${x + 12} ${y}H${x + width - 12}L${x + width} ${y + height / 2}L${x + width - 12} ${y + height}H${x + 12}L${x} ${y + height / 2}Z`;
