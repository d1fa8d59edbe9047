"""The look of the console's pages, in light and dark, and the one script, which updates live parts."""

_LIGHT = """color-scheme: light; --ink: #1b1f24; --soft: #57606a; --back: #ffffff; --panel: #f6f8fa; --line: #d0d7de;
  --base: #2f6db0; --redo: #b4690e; --undo: #6e7781; --idle: #b6bfc9; --link: #0b57b0; --bad: #b3261e;
  --mark: #e7f0fa;"""
_DARK = """color-scheme: dark; --ink: #e6edf3; --soft: #9aa4af; --back: #0f1419; --panel: #171d24; --line: #353c45;
  --base: #6aa3dc; --redo: #e3a857; --undo: #8b949e; --idle: #4d5661; --link: #79b8ff; --bad: #ff8a80;
  --mark: #1d2b3a;"""

STYLE = (
    f"""
:root {{ {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
:root[data-scheme=light] {{ {_LIGHT} }}
:root[data-scheme=dark] {{ {_DARK} }}
"""
    + """
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); display: grid;
  grid-template: auto 1fr / 12.5rem minmax(0, 1fr); grid-template-areas: "header header" "nav main";
  min-height: 100vh; }
header { grid-area: header; display: flex; flex-wrap: wrap; align-items: center; gap: .3rem 1.2rem;
  padding: .6rem 1.5rem; border-bottom: 1px solid var(--line); background: var(--panel); }
.brand { display: flex; align-items: center; gap: .5rem; color: inherit; text-decoration: none; font-size: 1.1rem; }
.brand small, .server, .user { color: var(--soft); font-size: .85rem; }
.server { margin-right: auto; }
.mark { width: 1.5rem; } .mark rect { fill: var(--base); } .mark rect:nth-of-type(2) { fill: var(--redo); }
.schemes { display: flex; gap: .6rem; font-size: .85rem; }
nav { grid-area: nav; padding: 1rem 0 2rem; border-right: 1px solid var(--line); }
nav div { display: flex; flex-direction: column; padding-bottom: .8rem; }
nav span { padding: 0 1.5rem .1rem; color: var(--soft); font-size: .8rem; }
nav a { padding: .15rem 1.5rem; text-decoration: none; }
nav a:hover { text-decoration: underline; }
nav a[aria-current] { color: inherit; font-weight: 600; background: var(--mark);
  box-shadow: inset 3px 0 var(--base); }
main { grid-area: main; padding: .5rem 1.5rem 3rem; max-width: 80rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--base); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: .5rem; top: .5rem; padding: .4rem .8rem; background: var(--back); z-index: 1; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; padding: .25rem 1.1rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { vertical-align: bottom; } th small { color: var(--soft); font-weight: 400; }
th a { color: inherit; }
th[aria-sort=ascending] a::after { content: " \\25B2"; } th[aria-sort=descending] a::after { content: " \\25BC"; }
tbody tr:hover { background: var(--panel); }
tfoot td { font-weight: 600; border-bottom: none; }
.number { text-align: right; }
td.number, td:first-child { white-space: nowrap; }
.null { color: var(--soft); font-style: italic; }
pre { overflow-x: auto; font-size: .85rem; }
form { display: inline; }
.search { display: flex; flex-wrap: wrap; gap: .5rem; margin: .8rem 0; }
.search input { flex: 0 1 20rem; min-width: 8rem; } .narrow { display: none; }
button, select, input { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line);
  border-radius: 4px; padding: .1rem .6rem; }
button:hover { border-color: var(--base); }
.bad { color: var(--bad); }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.tiles div { padding: .5rem .9rem; background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  min-width: 8rem; }
.tiles dt { color: var(--soft); font-size: .85rem; } .tiles dd { margin: 0; font-size: 1.2rem; font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .6rem .8rem; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .1rem 1rem; }
svg { display: block; width: 100%; }
.rowsets { max-width: 60rem; border: 1px solid var(--line); margin: .3rem 0; }
.axis { display: flex; justify-content: space-between; max-width: 60rem; color: var(--soft); font-size: .8rem; }
summary { color: var(--link); cursor: pointer; }
.base { fill: var(--base); } .redo { fill: var(--redo); } .undo { fill: var(--undo); }
figure small { display: block; color: var(--soft); } figure output { display: block; min-height: 1.5em; }
.graph text { fill: var(--soft); font-size: 9px; font-variant-numeric: tabular-nums; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px;
  background: var(--base); }
.key.second::before, .key.redo::before, .key.planning::before { background: var(--redo); }
.key.undo::before, .key.waiting::before { background: var(--undo); } .key.client::before { background: var(--idle); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .5rem 0; font-size: .9rem; }
.line { fill: none; stroke: var(--base); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.line.second { stroke: var(--redo); } .floor { stroke: var(--line); }
.bar { height: .8rem; min-width: 9rem; max-width: 40rem; }
td small { color: var(--soft); white-space: nowrap; }
.waiting { fill: var(--undo); } .planning { fill: var(--redo); } .working { fill: var(--base); }
.client { fill: var(--idle); }
@media (max-width: 60rem) {
  body { grid-template: auto auto 1fr / minmax(0, 1fr); grid-template-areas: "header" "nav" "main"; }
  nav { display: flex; overflow-x: auto; padding: .4rem 0; border-right: none; border-bottom: 1px solid var(--line); }
  nav div { flex-direction: row; padding: 0; } nav span { display: none; }
  nav a { padding: .35rem .8rem; white-space: nowrap; }
  nav a[aria-current] { box-shadow: inset 0 -3px var(--base); }
}
@media (max-width: 40rem) {
  header, main { padding-left: 1rem; padding-right: 1rem; }
  .wide table, .wide tbody, .wide tfoot, .wide tr, .wide caption { display: block; width: 100%; }
  .wide thead { position: absolute; left: -99rem; }
  .wide tr { padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .wide td { display: flex; justify-content: space-between; gap: 1rem; padding: .05rem 0; border: none;
    text-align: right; white-space: normal; overflow-wrap: anywhere; }
  .wide td::before { content: attr(data-title); flex: none; color: var(--soft); font-weight: 400; }
  .wide td:first-child { font-weight: 600; text-align: left; }
  .wide td:first-child::before, .wide td:empty { display: none; }
  .search input { flex: 1 1 12rem; } .narrow { display: flex; gap: .5rem; }
  .tiles div { flex: 1 1 40%; min-width: 0; } .graph text { font-size: 11px; }
}
"""
)

SCRIPT = """
// Replaces each part marked data-live by its newest state. Without this script, reload the page.
const seconds = 5;
const button = document.createElement('button');
let paused = false;
button.type = 'button';
button.textContent = 'Pause updates';
button.onclick = () => {
  paused = !paused;
  button.textContent = paused ? 'Resume updates' : 'Pause updates';
};
document.querySelector('h1').after(button);
async function update() {
  const live = [...document.querySelectorAll('[data-live]')];
  if (paused || document.hidden || live.some(part => part.contains(document.activeElement))) return;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    for (const part of live) {
      const newest = page.getElementById(part.id);
      if (newest) part.replaceWith(document.adoptNode(newest));
    }
  } catch { /* the server is away: try again */ }
}
setInterval(update, seconds * 1000);

// Tells the values of a graph at the place that is pointed at or touched.
const rounded = value => value >= 10 || Number.isInteger(value) ? Math.round(value).toLocaleString('en')
  : Number(value.toPrecision(3)).toString();
const units = {
  count: rounded,
  seconds: value => value >= 1 || !value ? `${value.toFixed(2)} s` : `${Number((value * 1e3).toPrecision(3))} ms`,
  bytes: value => {
    const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    for (; value >= 1024 && unit < 4; unit++) value /= 1024;
    return `${value.toFixed(unit ? 1 : 0)} ${names[unit]}`;
  },
};
function tell(event) {
  const graph = event.target.closest?.('svg.graph');
  if (!graph) return;
  const [left, top, width, height] = graph.dataset.plot.split(' ').map(Number);
  const box = graph.getBoundingClientRect();
  const x = (event.clientX - box.left) * graph.viewBox.baseVal.width / box.width;
  const share = Math.min(Math.max((x - left) / width, 0), 1);
  const { since, until, unit } = graph.dataset;
  const moment = new Date(1000 * (Number(since) + share * (until - since)));
  const values = [...graph.querySelectorAll('polyline')].map(line => {
    const points = line.getAttribute('points').split(' ');
    const y = Number(points[Math.round(share * (points.length - 1))].split(',')[1]);
    const value = Number(graph.dataset.top) * Math.max(1 - (y - top) / height, 0);
    return `${line.dataset.name} ${units[unit](value)}`.trim();
  });
  const time = moment.toISOString().slice(11, 19);
  graph.parentElement.querySelector('output').textContent = `${time}: ${values.join(', ')}`;
}
for (const kind of ['pointermove', 'pointerdown']) document.addEventListener(kind, tell);
"""
