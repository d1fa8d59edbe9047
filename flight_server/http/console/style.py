"""What the console's pages look like, in light and dark, and the one script, which updates live parts."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --back: #ffffff; --panel: #f6f8fa; --line: #d0d7de;
  --base: #3b6ea5; --redo: #c2761b; --undo: #7d8590; --link: #0b57b0; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --back: #0f1419; --panel: #171d24;
  --line: #353c45; --base: #6aa3dc; --redo: #e3a857; --undo: #7d8590; --link: #79b8ff; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); }
nav { padding: .7rem 1.5rem; border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .3rem 1.5rem; }
nav a[aria-current] { color: inherit; font-weight: 600; text-decoration: none; }
main { padding: .5rem 1.5rem 3rem; max-width: 75rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--base); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: .5rem; top: .5rem; padding: .4rem .8rem; background: var(--back); z-index: 1; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; margin: 1.5rem 0 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; }
td.number, td:first-child { white-space: nowrap; }
form { display: inline; }
button, select, input { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line);
  border-radius: 4px; padding: .1rem .6rem; }
button:hover { border-color: var(--base); }
.bad { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .6rem .8rem; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
figcaption { display: flex; justify-content: space-between; gap: 1rem; }
svg { display: block; width: 100%; }
.rowsets { max-width: 60rem; border: 1px solid var(--line); margin: .3rem 0; }
.base { fill: var(--base); } .redo { fill: var(--redo); } .undo { fill: var(--undo); }
.line { fill: none; stroke: var(--base); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.line.second { stroke: var(--redo); } .floor { stroke: var(--line); }
.bar { height: .8rem; min-width: 12rem; }
.waiting { fill: var(--undo); } .planning { fill: var(--redo); } .working { fill: var(--base); }
.client { fill: var(--line); }
"""

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
"""
