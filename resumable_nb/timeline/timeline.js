// Draws the timeline of a thread, and the list of all threads of a store: in a notebook (anywidget calls `render`) and
// in a file (`mountPage`). What it draws comes from models and files: it becomes text nodes, never HTML.
const ROW = 30, ROWS_SHOWN = 14, BESIDE = 6, GAP = 26, POLL_MS = 1500, OLDER = 4000;

// ---------------------------------------------------------------- small things
function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.flat(3).filter(child => child !== null && child !== undefined && child !== '' && child !== false && child !== 0));
  return node;
}

const number = value => Math.round(value).toLocaleString('en-US');
const short = value => (value >= 1e6 ? `${(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${Math.round(value / 1e3)}k`
  : value >= 1e3 ? `${(value / 1e3).toFixed(1)}k` : String(value));
const counted = (count, what) => `${number(count)} ${what}${count === 1 ? '' : 's'}`;
const money = usd => (usd === null ? '' : usd === 0 ? '$0' : usd < 0.01 ? `$${usd.toPrecision(2)}` : `$${usd.toFixed(2)}`);
const pad = value => String(value).padStart(2, '0');
const day = at => { const d = new Date(at); return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`; };
const clock = at => { const d = new Date(at); return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`; };
const zone = at => { const east = -new Date(at).getTimezoneOffset(), off = Math.abs(east); return east ? `${east < 0 ? '-' : '+'}${pad(Math.floor(off / 60))}:${pad(off % 60)}` : 'UTC'; };
const when = at => `${day(at)} ${clock(at)} ${zone(at)}`;

function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60e3) return `${(ms / 1e3).toFixed(ms < 10e3 ? 1 : 0)} s`;
  const minutes = Math.round(ms / 60e3);
  if (minutes < 60) return `${Math.floor(ms / 60e3)} min ${Math.round((ms % 60e3) / 1e3)} s`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.round(minutes / 1440)} days`;
}

const HOW = {
  ran: 'ran', replayed: 'replayed from recorded answers', skipped: 'skipped: it was done', 'taken up': 'skipped: an earlier run was taken up',
  failed: 'failed', interrupted: 'interrupted', waiting: 'stopped to wait for a person', lost: 'lost: its process died',
  running: 'running', edited: 'the state was edited', start: 'the thread starts', migrated: 'the state was migrated', retired: 'answers retired (fresh)',
  pruned: 'ran; its checkpoint was pruned'
};
const STANDS = { done: '✓', running: '▸', waiting: '‖', failed: '✕', interrupted: '✕', lost: '✕', 'in doubt': '?', edited: '✎', start: '•', retired: '○', pruned: '○', migrated: '↥' };
const POINTS = ['skipped', 'taken up', 'retired', 'edited', 'start', 'migrated'];

// ---------------------------------------------------------------- the state, from what checkpoints changed
function fold(state, changes) {
  const next = { ...state };
  for (const name of Object.keys(changes.drop || {})) delete next[name];
  Object.assign(next, changes.set || {});
  for (const [name, items] of Object.entries(changes.append || {})) next[name] = [...(Array.isArray(next[name]) ? next[name] : []), ...items];
  return next;
}

function differences(before, after) {
  const found = [];
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const a = before[name], b = after[name];
    if (JSON.stringify(a) === JSON.stringify(b)) continue;
    if (Array.isArray(a) && Array.isArray(b)) {
      const old = new Map(), gone = [], more = [];
      for (const item of a) { const key = JSON.stringify(item); old.set(key, (old.get(key) || 0) + 1); }
      for (const item of b) { const key = JSON.stringify(item); if (old.get(key)) old.set(key, old.get(key) - 1); else more.push(item); }
      for (const item of a) { const key = JSON.stringify(item); if (old.get(key)) { old.set(key, old.get(key) - 1); gone.push(item); } }
      found.push({ name, gone, more, moved: !gone.length && !more.length });
    } else found.push({ name, gone: name in before ? [a] : [], more: name in after ? [b] : [] });
  }
  return found;
}

const told = value => (typeof value === 'string' ? value : JSON.stringify(value, null, 1));
const LONG = 4000, MANY = 100;

function valueNode(value, mark = '') {
  if (value && typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length) {
    return h('div', { class: `rnb-value rnb-pairs ${mark}` }, Object.entries(value).map(([name, one]) => [h('span', { class: 'rnb-quiet' }, name), h('span', {}, cutText(told(one) ?? ''))]));
  }
  return h('pre', { class: `rnb-value ${mark}` }, cutText(told(value) ?? ''));
}

const cutText = text => (text.length > LONG ? `${text.slice(0, LONG)}\n… ${number(text.length - LONG)} more characters` : text);

function items(values, mark) {
  const more = values.length - MANY;
  return [...values.slice(0, MANY).map(value => valueNode(value, mark)), more > 0 && h('p', { class: 'rnb-quiet' }, `… ${counted(more, 'more item')}`)];
}

function differencesNode(found) {
  if (!found.length) return h('p', { class: 'rnb-quiet' }, 'The state is the same.');
  return found.map(({ name, gone, more, moved }) => h('section', { class: 'rnb-field' },
    h('h5', {}, name, h('span', { class: 'rnb-quiet' }, moved ? ' in another order' : ` ${gone.length ? `−${gone.length}` : ''} ${more.length ? `+${more.length}` : ''}`)),
    items(gone, 'rnb-gone'), items(more, 'rnb-more')));
}

function stateNode(state) {
  return Object.entries(state).map(([name, value]) => h('section', { class: 'rnb-field' },
    h('h5', {}, name, Array.isArray(value) && h('span', { class: 'rnb-quiet' }, ` ${counted(value.length, 'item')}`)),
    Array.isArray(value) ? items(value, '') : valueNode(value)));
}

// ---------------------------------------------------------------- time, with idle gaps made short
function timeScale(intervals, width) {
  const sorted = intervals.filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b)).sort((a, b) => a[0] - b[0]);
  if (!sorted.length) return { x: () => 0, parts: [], gaps: [] };
  const total = sorted.reduce((sum, [a, b]) => sum + (b - a), 0), bridge = Math.max(total * 0.05, 1);
  const parts = [];
  for (const [a, b] of sorted) {
    const last = parts[parts.length - 1];
    if (last && a - last.b <= bridge) last.b = Math.max(last.b, b);
    else parts.push({ a, b });
  }
  const gap = Math.min(GAP, (0.4 * width) / Math.max(parts.length - 1, 1)), least = Math.min(14, (0.3 * width) / parts.length);
  const time = parts.reduce((sum, part) => sum + (part.b - part.a), 0) || 1;
  const free = Math.max(width - gap * (parts.length - 1) - least * parts.length, 0);
  let x = 0;
  for (const part of parts) { part.x = x; part.w = least + (free * (part.b - part.a)) / time; x += part.w + gap; }
  const gaps = parts.slice(1).map((part, i) => ({ ms: part.a - parts[i].b, x: parts[i].x + parts[i].w, w: gap }));
  const place = at => {
    let low = 0, high = parts.length - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (parts[middle].a <= at) low = middle; else high = middle - 1; }
    const part = parts[low];
    if (at <= part.a) return part.x;
    if (at <= part.b) return part.x + (part.w * (at - part.a)) / (part.b - part.a || 1);
    const next = parts[low + 1];
    return next ? part.x + part.w + (gap * (at - part.b)) / (next.a - part.b) : part.x + part.w;
  };
  return { x: place, parts, gaps };
}

// ---------------------------------------------------------------- the timeline
class Timeline {
  constructor(root, source) {
    this.source = source;
    this.active = 0; this.run = null; this.selected = null; this.tab = 'changes'; this.comparing = null; this.filter = ''; this.only = '';
    this.changes = new Map(); this.earlier = {};
    this.build(root);
    this.take(source.picture);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.scroller);
    // the canvas has no colours of its own: another theme draws it anew
    this.theme = new MutationObserver(() => this.recolour());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light', 'data-jp-theme-name'] });
    this.scheme = matchMedia('(prefers-color-scheme: dark)');
    this.onScheme = () => this.recolour();
    this.scheme.addEventListener('change', this.onScheme);
  }

  build(root) {
    this.head = h('header', { class: 'rnb-head' });
    this.map = h('canvas', { class: 'rnb-map', height: 34, 'aria-hidden': 'true', onpointerdown: e => this.onMap(e), onpointermove: e => e.buttons && this.onMap(e) });
    this.axis = h('div', { class: 'rnb-axis' });
    this.canvas = h('div', { class: 'rnb-rows' });
    this.scroller = h('div', {
      class: 'rnb-scroll', tabindex: 0, role: 'grid', 'aria-label': 'Steps', onscroll: () => this.later(), onkeydown: e => this.onKey(e)
    }, this.canvas);
    this.note = h('p', { class: 'rnb-note', role: 'status', 'aria-live': 'polite' });
    this.detail = h('section', { class: 'rnb-detail', 'aria-label': 'Details', onkeydown: e => { if (e.key === 'Escape') { this.close(); e.stopPropagation(); } } });
    this.tip = h('div', { class: 'rnb-tip', role: 'tooltip', hidden: true });
    const titles = ['step', this.axis, 'tokens', 'cost', 'time'];
    this.titles = h('div', { class: 'rnb-row rnb-titles' }, titles.map((title, i) => h('div', { class: `rnb-c${i}` }, title)));
    this.root = h('div', { class: 'rnb', 'data-lm-suppress-shortcuts': 'true' }, this.head, this.note, this.map, this.titles, this.scroller, legend(), this.detail, this.tip);
    this.root.addEventListener('pointerover', e => this.onHover(e));
    this.root.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    root.replaceChildren(this.root);
  }

  dispose() {
    this.watch.disconnect();
    this.theme.disconnect();
    this.scheme.removeEventListener('change', this.onScheme);
  }

  // ------------------------------------------------------------ data
  take(picture) {
    if (this.picture && this.picture.reading !== picture.reading) this.forget();
    this.picture = picture;
    this.parents = new Map(); this.byRun = new Map();
    picture.rows.forEach(row => row.runs.forEach(run => {
      this.byRun.set(run.seq + ':' + row.name, { row, run });
      if (run.checkpoint !== undefined) this.parents.set(run.checkpoint, run.parent);
    }));
    this.most = picture.rows.reduce((most, row) => Math.max(most, row.input + row.output), 1);
    this.mostMs = picture.rows.reduce((most, row) => Math.max(most, row.ms), 1);
    if (this.selected) this.selected = this.byRun.get(this.selected.run.seq + ':' + this.selected.row.name) || null;
    const top = Math.floor(this.scroller.scrollTop / ROW), seen = this.rows && this.rows[top];
    this.drawHead();
    this.refilter();
    this.keepInSight(seen, top);
    if (this.selected) this.drawDetail();
  }

  // The rows of the thread have become others (it was pruned): what was asked of them may be no longer so.
  forget() { this.changes.clear(); this.earlier = {}; this.drawn = ''; }

  // Rows that come or go above those in sight do not move them.
  keepInSight(seen, top) {
    const now = seen ? this.rows.findIndex(row => row.name === seen.name && row.what === seen.what) : -1;
    if (now >= 0) this.scroller.scrollTop += (now - top) * ROW;
  }

  // Nothing new: what runs or waits has gone on for longer.
  tick() {
    if (!this.picture.rows.some(row => row.stands === 'running' || row.stands === 'waiting')) return;
    this.picture.now = Date.now();
    this.draw();
  }

  refilter() {
    const wanted = this.filter.toLowerCase();
    const at = this.rows && this.rows[this.active];
    this.rows = this.picture.rows.filter(row => (!wanted || row.name.toLowerCase().includes(wanted)) && (!this.only || row.stands === this.only));
    const found = at ? this.rows.findIndex(row => row.name === at.name && row.what === at.what) : -1;
    this.active = Math.max(found, 0);
    this.canvas.style.height = `${this.rows.length * ROW}px`;
    this.scroller.style.height = `${Math.min(this.rows.length, ROWS_SHOWN) * ROW + 2}px`;
    this.scroller.setAttribute('aria-rowcount', this.rows.length);
    this.map.hidden = this.picture.rows.length <= ROWS_SHOWN * 2;
    this.draw();
  }

  // ------------------------------------------------------------ head
  drawHead() {
    const p = this.picture, t = p.totals, last = p.sessions[p.sessions.length - 1];
    const tokens = t.input + t.output;
    const spent = [t.calls && counted(t.calls, 'LLM call'), tokens && `${number(tokens)} tokens`, t.usd && money(t.usd), `${duration(t.ms)} of work`].filter(Boolean).join(' · ');
    const more = [counted(t.sessions, 'session'), t.crashes && counted(t.crashes, 'crash').replace('crashs', 'crashes'),
      t.waited_ms > 1000 && `${duration(t.waited_ms)} waiting for people`,
      (t.saved_calls || t.saved_ms > 1000) && `${[t.saved_calls && counted(t.saved_calls, 'call'), duration(t.saved_ms)].filter(Boolean).join(', ')} saved by skipping`,
      t.twice && `${counted(t.twice, 'call')} asked twice`,
      p.unread.length && `not read, being nested too deeply: what row ${p.unread.join(', ')} says`,
      p.earlier && `not drawn: ${counted(p.earlier.count, 'earlier step')} with ${counted(p.earlier.calls, 'LLM call')}, until ${when(p.earlier.end)}`].filter(Boolean).join(' · ');
    const states = ['running', 'waiting', 'in doubt', 'failed', 'interrupted', 'lost'];
    const chips = states.map(state => [state, p.rows.filter(row => row.stands === state).length]).filter(([, count]) => count)
      .map(([state, count]) => h('button', { class: `rnb-chip rnb-is-${state.replace(' ', '-')}`, 'aria-pressed': String(this.only === state),
        onclick: () => { this.only = this.only === state ? '' : state; this.drawHead(); this.refilter(); } }, `${STANDS[state]} ${count} ${state}`));
    const search = p.rows.length > ROWS_SHOWN && h('input', { class: 'rnb-search', type: 'search', placeholder: 'Filter steps', 'aria-label': 'Filter steps', value: this.filter,
      oninput: e => { this.filter = e.target.value; this.refilter(); } });
    const open = last && last.ended === '' ? h('span', { class: 'rnb-live' }, `open in ${last.who}`) : last && last.ended === 'unknown' ? h('span', { class: 'rnb-quiet' }, `maybe open in ${last.who}`) : '';
    const fork = p.forked && h('span', { class: 'rnb-quiet' }, `forked from ${p.forked.from} at ${p.forked.seq}`);
    const focused = document.activeElement && this.head.contains(document.activeElement) && document.activeElement.type === 'search';
    this.head.replaceChildren(
      h('div', { class: 'rnb-title' }, this.source.back && h('button', { class: 'rnb-link', onclick: this.source.back }, '‹ threads'), h('h4', {}, p.thread), fork, open, h('span', { class: 'rnb-space' }), chips, search),
      h('p', { class: 'rnb-quiet' }, spent, h('br'), more, this.olderNode()));
    if (focused) this.head.querySelector('input').focus();
  }

  olderNode() {
    const { earlier, rows } = this.picture;
    if (!earlier || !this.source.older) return '';
    const count = Math.min(earlier.count, OLDER);
    return [' ', h('button', { class: 'rnb-link', onclick: event => {
      event.target.disabled = true;
      event.target.textContent = 'older steps are drawn when the kernel is free …';
      this.source.older(rows.length + OLDER);
    } }, `draw ${count === earlier.count ? 'them' : `${number(count)} of them`} too`)];
  }

  // ------------------------------------------------------------ rows
  later() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  window() {
    const first = Math.floor(this.scroller.scrollTop / ROW), shown = Math.ceil((this.scroller.clientHeight || 1) / ROW);
    return [Math.max(first, 0), Math.min(first + shown + 1, this.rows.length)];
  }

  draw() {
    if (!this.rows) return;
    const [first, end] = this.window(), lane = this.axis.clientWidth || 300;
    const visible = this.picture.rows.length <= ROWS_SHOWN * 2 ? this.rows : this.rows.slice(first, end);
    const spans = [], runs = visible.flatMap(row => row.runs);
    for (const run of runs) spans.push([run.at, run.end ?? this.picture.now]);
    for (const row of visible) for (const wait of row.waits) spans.push([wait.at, wait.at], [wait.end ?? this.picture.now, wait.end ?? this.picture.now]);
    this.scale = timeScale(spans, lane - 10);
    const from = Math.max(first - BESIDE, 0), to = Math.min(end + BESIDE, this.rows.length);
    const nodes = [];
    for (let i = from; i < to; i++) nodes.push(this.rowNode(this.rows[i], i));
    this.canvas.replaceChildren(this.marksNode(runs), ...nodes);
    this.drawAxis();
    this.drawMap(first, end);
    this.scroller.setAttribute('aria-activedescendant', this.rows.length ? `${this.id()}-${this.active}` : '');
  }

  id() { return (this.name = this.name || `rnb${Math.random().toString(36).slice(2)}`); }

  rowNode(row, index) {
    const tokens = row.input + row.output, chosen = this.selected && this.selected.row === row;
    const node = h('div', { class: `rnb-row rnb-step${index === this.active ? ' rnb-active' : ''}${chosen ? ' rnb-chosen' : ''}`, role: 'row', id: `${this.id()}-${index}`,
      'aria-rowindex': index + 1, 'aria-selected': String(Boolean(chosen)), 'data-tip': this.rowTip(row), 'aria-label': this.rowTip(row),
      onclick: e => this.onRow(e, row, index) },
    h('div', { class: 'rnb-c0' }, h('span', { class: `rnb-glyph rnb-is-${row.stands.replace(' ', '-')}`, 'aria-hidden': 'true' }, STANDS[row.stands] || '·'), h('span', { class: row.what === 'step' ? 'rnb-name' : 'rnb-name rnb-other' }, row.name)),
    h('div', { class: 'rnb-c1' }, row.waits.map(wait => this.waitNode(wait)), row.runs.map(run => this.runNode(row, run)), row.effects.map(effect => this.effectNode(effect))),
    h('div', { class: 'rnb-c2' }, tokens ? [this.bar(row.output, this.most, 'rnb-out', this.bar(row.input, this.most, 'rnb-in')), short(tokens)] : ''),
    h('div', { class: 'rnb-c3' }, row.usd ? money(row.usd) : ''),
    h('div', { class: 'rnb-c4' }, row.ms >= 1 ? [this.bar(row.ms, this.mostMs, 'rnb-ms'), duration(row.ms)] : ''));
    node.style.transform = `translateY(${index * ROW}px)`;
    return node;
  }

  bar(value, most, kind, beside) {
    const node = h('span', { class: `rnb-bar ${kind}` });
    node.style.width = `${Math.max((30 * value) / most, value ? 1 : 0)}px`;
    return beside ? h('span', { class: 'rnb-bars' }, beside, node) : node;
  }

  rowTip(row) {
    const tokens = row.input + row.output;
    return [row.name, `${row.stands}${row.calls ? ` · ${counted(row.calls, 'LLM call')}` : ''}${tokens ? ` · ${number(row.input)} + ${number(row.output)} tokens` : ''}${row.usd ? ` · ${money(row.usd)}` : ''}${row.ms >= 1 ? ` · ${duration(row.ms)}` : ''}`,
      row.models.join(', '), row.runs.length > 1 && counted(row.runs.length, 'run')].filter(Boolean).join('\n');
  }

  put(node, from, to, least) {
    const x = this.scale.x(from);
    node.style.left = `${x}px`;
    node.style.width = `${Math.max(this.scale.x(to) - x, least)}px`;
    return node;
  }

  runNode(row, run) {
    const end = run.end ?? this.picture.now, point = POINTS.includes(run.how);
    const chosen = this.selected && this.selected.run === run, waits = this.comparing && this.comparing.run === run;
    const node = h('span', { class: `rnb-run rnb-how-${run.how.replace(' ', '-')}${point ? ' rnb-point' : ''}${chosen ? ' rnb-picked' : ''}${waits ? ' rnb-first' : ''}${run.lineage === false ? ' rnb-aside' : ''}`,
      'data-run': run.seq, 'data-tip': this.runTip(row, run) });
    this.put(node, run.at, end, point ? 8 : 4);
    if (point) return node;
    const left = this.scale.x(run.at);
    for (const call of run.calls) {
      const inside = h('i', { class: `rnb-call rnb-${call.kind} rnb-phase-${call.phase}`, 'data-tip': callTip(call) });
      const x = this.scale.x(call.at);
      inside.style.left = `${Math.max(x - left, 0)}px`;
      inside.style.width = `${Math.max(this.scale.x(call.at + (call.ms ?? Math.max(end - call.at, 0))) - x - 1, 2)}px`;
      node.append(inside);
    }
    return node;
  }

  runTip(row, run) {
    const calls = [run.count && counted(run.count, 'call'), run.replayed && `${counted(run.replayed, 'answer')} from the journal`, run.input + run.output && `${number(run.input + run.output)} tokens`].filter(Boolean).join(', ');
    return [`${row.name}: ${HOW[run.how] || run.how}`, POINTS.includes(run.how) ? when(run.at) : `${when(run.at)} · ${duration(run.ms)}`, calls, run.error,
      run.changed && run.changed.length && `changed: ${run.changed.join(', ')}`, run.checkpoint !== undefined && `checkpoint ${run.checkpoint}${run.lineage ? '' : ' (not in the lineage)'}`].filter(Boolean).join('\n');
  }

  waitNode(wait) {
    const words = wait.word ? `${wait.word}${wait.who ? ` by ${wait.who}` : ''}${wait.edited ? ', edited' : ''}` : 'waits for a decision';
    const tip = [wait.message, `${words} · ${duration((wait.end ?? this.picture.now) - wait.at)}`, wait.comment && `“${wait.comment}”`].filter(Boolean).join('\n');
    return this.put(h('span', { class: `rnb-wait ${wait.word ? `rnb-${wait.word.replace(' ', '-')}` : 'rnb-open'}`, 'data-tip': tip }), wait.at, wait.end ?? this.picture.now, 4);
  }

  effectNode(effect) {
    const node = h('span', { class: `rnb-effect rnb-${effect.stands.replaceAll(' ', '-')}`, 'data-tip': `${effect.name} (${effect.key})\n${effect.stands}${effect.by ? `, as ${effect.by} said` : ''}` });
    node.style.left = `${this.scale.x(effect.at)}px`;
    return node;
  }

  marksNode(runs) {
    const seen = h('div', { class: 'rnb-marks', 'aria-hidden': 'true' });
    if (!this.scale.parts.length) return seen;
    const within = at => at >= this.scale.parts[0].a - 1 && at <= this.scale.parts[this.scale.parts.length - 1].b + 1;
    for (const mark of this.picture.marks) {
      if (!within(mark.at)) continue;
      const line = h('span', { class: `rnb-line rnb-mark-${mark.kind}` });
      line.style.left = `${this.scale.x(mark.at)}px`;
      seen.append(line);
    }
    return seen;
  }

  drawAxis() {
    const nodes = [], { parts, gaps, x } = this.scale;
    if (!parts.length) return this.axis.replaceChildren();
    let free = -1, lastDay = '';
    for (const part of parts) {
      const text = day(part.a) === lastDay ? clock(part.a) : `${day(part.a).slice(5)} ${clock(part.a)}`;
      if (part.x < free || part.x > this.axis.clientWidth - 56) continue;
      lastDay = day(part.a);
      const label = h('span', { class: 'rnb-tick' }, text);
      label.style.left = `${part.x}px`;
      free = part.x + text.length * 6.2 + 12;
      nodes.push(label);
    }
    for (const gap of gaps) {
      const node = h('span', { class: 'rnb-gap', 'data-tip': `${duration(gap.ms)} in which nothing shown here ran` }, gap.w > 12 ? '⋯' : '');
      node.style.left = `${gap.x}px`; node.style.width = `${gap.w}px`;
      nodes.push(node);
    }
    const from = parts[0].a, to = parts[parts.length - 1].b;
    this.picture.sessions.forEach((session, i) => {
      if (session.last < from || session.at > to) return;
      const ended = { '': 'still open', crashed: 'its process died', closed: 'closed', unknown: 'open, as far as can be seen from here' }[session.ended] || session.ended;
      nodes.push(this.put(h('span', { class: `rnb-session rnb-${session.ended || 'alive'}`, 'data-tip': `session ${i + 1}: ${session.who}\n${when(session.at)} to ${clock(session.last)} · ${ended}` }), session.at, session.ended === '' ? Math.max(to, session.last) : session.last, 3));
    });
    for (const mark of this.picture.marks) {
      if (mark.at < from - 1 || mark.at > to + 1) continue;
      const node = h('span', { class: `rnb-mark rnb-mark-${mark.kind}`, 'data-tip': `${mark.text}\n${when(mark.at)}` }, { crash: '✕', fork: '⑂', recovery: '↻', 'take-over': '⇄' }[mark.kind]);
      node.style.left = `${x(mark.at)}px`;
      nodes.push(node);
    }
    this.axis.replaceChildren(...nodes);
  }

  // All rows side by side, however many: a bar for the tokens of each, or its time where nothing was asked.
  drawMap(first, end) {
    if (this.map.hidden) return;
    const width = this.map.clientWidth || 600, ratio = window.devicePixelRatio || 1, height = this.map.height = 34 * ratio;
    this.map.width = width * ratio;
    const g = this.map.getContext('2d'), count = this.rows.length || 1;
    const from = (this.map.width * first) / count, wide = Math.max((this.map.width * (end - first)) / count, 4 * ratio);
    g.fillStyle = this.colour('--rnb-shade'); g.fillRect(from, 0, wide, height);
    g.drawImage(this.bars(this.map.width, height, ratio), 0, 0);
    g.strokeStyle = this.colour('--rnb-fg2'); g.lineWidth = ratio; g.strokeRect(from + ratio / 2, ratio / 2, wide - ratio, height - ratio);
  }

  // The bars change with the rows, not with what is in sight: scrolling draws them from a picture of them.
  bars(width, height, ratio) {
    const key = `${width} ${height}`;
    if (this.barsOf && this.barsOf.rows === this.rows && this.barsOf.key === key) return this.barsOf.canvas;
    const canvas = h('canvas', { width, height }), g = canvas.getContext('2d');
    const tokens = this.rows.some(row => row.input + row.output), most = tokens ? this.most : this.mostMs;
    const tone = { failed: '--rnb-bad', lost: '--rnb-bad', interrupted: '--rnb-bad', waiting: '--rnb-wait', 'in doubt': '--rnb-doubt', running: '--rnb-live' };
    const colours = new Map(['--rnb-ran', ...Object.values(tone)].map(name => [name, this.colour(name)]));
    const count = this.rows.length || 1, w = Math.max(width / count, ratio), order = this.rows.map((row, i) => [row, i]).sort(([a], [b]) => Boolean(tone[a.stands]) - Boolean(tone[b.stands]));
    for (const [row, i] of order) {
      const size = (3 + 26 * Math.sqrt(Math.min((tokens ? row.input + row.output : row.ms) / most, 1))) * ratio;
      g.fillStyle = colours.get(tone[row.stands] || '--rnb-ran');
      g.fillRect((width * i) / count, height - size, Math.max(w - (w > 3 * ratio ? ratio : 0), (tone[row.stands] ? 2 : 1) * ratio), size);
    }
    this.barsOf = { rows: this.rows, key, canvas };
    return canvas;
  }

  colour(name) { this.map.style.color = `var(${name})`; return getComputedStyle(this.map).color; }

  recolour() { this.barsOf = null; this.later(); }

  onMap(event) {
    const box = this.map.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width) * this.rows.length;
    this.scroller.scrollTop = (place - ROWS_SHOWN / 2) * ROW;
  }

  onHover(event) {
    const over = event.target.closest && event.target.closest('[data-tip]');
    if (!over) { this.tip.hidden = true; return; }
    this.tip.textContent = over.getAttribute('data-tip');
    this.tip.hidden = false;
    const box = this.root.getBoundingClientRect(), width = this.tip.offsetWidth, height = this.tip.offsetHeight;
    const y = event.clientY - box.top + 16;
    this.tip.style.left = `${Math.max(Math.min(event.clientX - box.left + 12, box.width - width - 4), 0)}px`;
    this.tip.style.top = `${event.clientY + height + 24 > window.innerHeight ? y - height - 28 : y}px`;
  }

  // ------------------------------------------------------------ choosing
  onRow(event, row, index) {
    this.tip.hidden = true;
    const hit = event.target.closest('[data-run]');
    const run = hit && row.runs.find(one => String(one.seq) === hit.dataset.run);
    this.active = index;
    this.choose(row, run || bestRun(row));
  }

  onKey(event) {
    const rows = this.rows.length, page = ROWS_SHOWN - 1;
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows, End: rows }[event.key];
    const row = this.rows[this.active];
    if (move) {
      this.active = Math.min(Math.max(this.active + move, 0), rows - 1);
      const top = this.active * ROW, view = this.scroller;
      if (top < view.scrollTop) view.scrollTop = top;
      else if (top + ROW > view.scrollTop + view.clientHeight) view.scrollTop = top + ROW - view.clientHeight;
      this.draw();
    } else if ((event.key === 'ArrowLeft' || event.key === 'ArrowRight') && row && row.runs.length) {
      const now = this.selected && this.selected.row === row ? row.runs.indexOf(this.selected.run) : row.runs.length;
      this.choose(row, row.runs[Math.min(Math.max(now + (event.key === 'ArrowLeft' ? -1 : 1), 0), row.runs.length - 1)]);
    } else if ((event.key === 'Enter' || event.key === ' ') && row) this.choose(row, bestRun(row));
    else if (event.key === 'Escape') this.close();
    else return;
    event.preventDefault(); event.stopPropagation();
  }

  choose(row, run) {
    if (!run) return;
    const first = this.comparing;
    this.selected = { row, run };
    if (first && checkpointOf(run) !== undefined) { this.comparing = null; this.between = [checkpointOf(first.run), checkpointOf(run)]; this.tab = 'compare'; } else this.between = null;
    if (!this.between && this.tab === 'compare') this.tab = 'changes';
    if (checkpointOf(run) === undefined && ['changes', 'state'].includes(this.tab)) this.tab = 'seen';
    this.say(this.comparing ? 'This run has no checkpoint: pick another one, or press Escape.' : '');
    this.draw();
    this.drawDetail();
  }

  close() {
    if (this.comparing) { this.comparing = null; this.say(''); } else this.selected = null;
    this.draw(); this.drawDetail();
    this.scroller.focus();
  }

  say(text) { this.note.textContent = text; }

  // ------------------------------------------------------------ details
  drawDetail() {
    if (!this.selected) return this.detail.replaceChildren();
    const { row, run } = this.selected, at = checkpointOf(run), tabs = [];
    if (at !== undefined) tabs.push(['changes', 'Changes'], ['state', 'State']);
    tabs.push(['seen', 'What the model saw'], ['runs', `Runs (${row.runs.length})`]);
    if (this.between) tabs.push(['compare', `${this.between[0]} → ${this.between[1]}`]);
    const name = `${this.id()}-tab`;
    const key = JSON.stringify([row.name, run.seq, run.how, run.end, this.tab, this.between, this.tab === 'seen' || this.tab === 'runs' ? [row.runs.length, row.runs.reduce((sum, one) => sum + one.count, 0), row.effects, row.waits] : 0]);
    if (this.drawn === key && this.detail.childElementCount) return;
    const same = this.drawn && JSON.stringify(JSON.parse(this.drawn).slice(0, 2)) === JSON.stringify([row.name, run.seq]);
    this.drawn = key;
    const kept = same ? this.detail.querySelector('.rnb-form') : null; // a name half typed outlives an update
    const list = h('div', { class: 'rnb-tabs', role: 'tablist' }, tabs.map(([tab, title]) => h('button', { role: 'tab', id: `${name}-${tab}`, 'aria-controls': `${name}-panel`, 'aria-selected': String(tab === this.tab), tabindex: tab === this.tab ? 0 : -1,
      onclick: () => this.show(tab), onkeydown: e => { const next = { ArrowRight: 1, ArrowLeft: -1 }[e.key]; if (next) { this.show(tabs[(tabs.findIndex(([one]) => one === tab) + next + tabs.length) % tabs.length][0]); this.detail.querySelector('[aria-selected=true]').focus(); e.preventDefault(); } } }, title)));
    const head = at === undefined ? `${HOW[run.how] || run.how} · ${when(run.at)}` : `checkpoint ${at} · ${HOW[run.how] || run.how} · ${when(run.at)}`;
    const panel = h('div', { class: 'rnb-panel', role: 'tabpanel', id: `${name}-panel`, 'aria-labelledby': `${name}-${this.tab}`, tabindex: 0 });
    this.detail.replaceChildren(
      h('div', { class: 'rnb-title' }, h('h4', {}, row.name), h('span', { class: 'rnb-quiet' }, head), h('span', { class: 'rnb-space' }),
        h('span', { class: 'rnb-buttons' }, at !== undefined && h('button', { onclick: () => this.askFork(at) }, 'Fork…'),
        at !== undefined && h('button', { onclick: () => { this.comparing = this.selected; this.say(`Pick a second checkpoint to compare with checkpoint ${at}, or press Escape.`); this.draw(); this.scroller.focus(); } }, 'Compare…'),
        h('button', { 'aria-label': 'Close', onclick: () => this.close() }, '✕'))),
      kept || '', run.error ? h('p', { class: 'rnb-error' }, run.error) : '', list, panel);
    this.fill(panel).catch(error => panel.replaceChildren(h('p', { class: 'rnb-error' }, String(error.message || error))));
  }

  show(tab) { this.tab = tab; this.drawDetail(); }

  async fill(panel) {
    const { row, run } = this.selected, tab = this.tab, at = checkpointOf(run);
    if (tab !== 'runs') panel.replaceChildren(h('p', { class: 'rnb-quiet' }, '…'));
    const content = tab === 'runs' ? this.runsNode(row) : tab === 'seen' ? await this.seenNode(row, run)
      : tab === 'compare' ? await this.compareNode(...this.between) : tab === 'state' ? stateNode(await this.stateAt(at)) : await this.compareNode(this.parentOf(at) ?? 0, at);
    panel.replaceChildren(...[content].flat(3).filter(Boolean));
  }

  async compareNode(a, b) {
    return [h('p', { class: 'rnb-quiet' }, a ? `from checkpoint ${a} to ${b}` : `checkpoint ${b}, from nothing`), differencesNode(differences(a ? await this.stateAt(a) : {}, await this.stateAt(b)))];
  }

  // The state at a checkpoint: what it and those before it changed, put together.
  async stateAt(seq) {
    const chain = [];
    for (let at = seq; at; at = this.parentOf(at)) {
      if (this.parentOf(at) === undefined && this.source.parents && this.picture.earlier) this.earlier = await this.source.parents();
      if (this.parentOf(at) === undefined) throw new Error(`Checkpoint ${at} is not among what is drawn here: it was pruned, or lies too far back. In Python: thread.state_at(${seq}).`);
      chain.push(at);
    }
    const missing = chain.filter(at => !this.changes.has(at));
    if (missing.length) {
      const found = await this.source.ask('changes', { checkpoints: missing });
      for (const [at, changes] of Object.entries(found.changes)) this.changes.set(Number(at), changes);
    }
    const unread = chain.map(at => this.changes.get(at)).find(changes => changes && changes.unread);
    if (unread) throw new Error(unread.unread);
    const left = chain.filter(at => !this.changes.has(at)).length;
    if (left) throw new Error(`${this.source.cut(left, 'checkpoint')} In Python: thread.state_at(${seq}).`);
    return chain.reverse().reduce((state, at) => fold(state, this.changes.get(at)), {});
  }

  // Of checkpoints that are not drawn, what the kernel said.
  parentOf(at) { return this.parents.get(at) ?? this.earlier[at]; }

  async seenNode(row, run) {
    const until = run.of ?? run.checkpoint ?? Infinity;
    const runs = row.runs.filter(one => one.count + one.effects && one.seq <= Math.max(run.seq, until === Infinity ? 0 : until)).map(one => one.seq);
    if (!runs.length) return h('p', { class: 'rnb-quiet' }, 'This step asked nothing.');
    const found = await this.source.ask('exchanges', { runs });
    const first = found.calls.find(call => call.kind === 'llm') || found.calls[0];
    const note = found.calls.some(call => call.run !== run.seq) && found.calls.length ? 'Calls of earlier runs of this step are among them.' : '';
    return [note && h('p', { class: 'rnb-quiet' }, note), found.calls.map(call => exchangeNode(call, call === first)), found.left > 0 && h('p', { class: 'rnb-cut' }, this.source.cut(found.left, 'call'))];
  }

  runsNode(row) {
    const lines = row.runs.map(run => ({ at: run.at, text: this.runTip(row, run).split('\n').slice(0).join(' · ').replace(`${row.name}: `, ''), go: run }));
    for (const wait of row.waits) lines.push({ at: wait.at, text: `asked a person: ${wait.message} — ${wait.word || 'waits'}${wait.who ? ` by ${wait.who}` : ''}${wait.comment ? ` (“${wait.comment}”)` : ''}${wait.end ? `, after ${duration(wait.end - wait.at)}` : ''}` });
    for (const effect of row.effects) lines.push({ at: effect.at, text: `effect ${effect.name} (${effect.key}): ${effect.stands}` });
    for (const resource of row.resources) lines.push({ at: resource.at, text: `resource ${resource.name}: ${resource.phase === 'done' ? 'acquired' : 'could not be acquired'}` });
    return h('ul', { class: 'rnb-list' }, lines.sort((a, b) => b.at - a.at).slice(0, 300).map(line => h('li', {}, line.go ? h('button', { class: 'rnb-link', onclick: () => this.choose(row, line.go) }, line.text) : line.text)));
  }

  askFork(seq) {
    const before = this.detail.querySelector('.rnb-form');
    if (before) before.remove();
    const name = h('input', { type: 'text', 'aria-label': 'Name of the new thread', value: `${this.picture.thread}-from-${seq}` });
    const said = h('p', { class: 'rnb-said', role: 'status' });
    const make = async () => {
      try { said.textContent = await this.source.fork(seq, name.value.trim()); } catch (error) { said.textContent = String(error.message || error); }
    };
    // no form: JupyterLab keeps Enter from sending one
    name.addEventListener('keydown', event => { if (event.key === 'Enter') { event.preventDefault(); make(); } });
    const form = h('div', { class: 'rnb-form' }, h('label', {}, `A new thread that starts with checkpoint ${seq}: `, name), h('button', { onclick: make }, 'Fork'), said);
    this.detail.querySelector('.rnb-title').after(form);
    name.focus(); name.select();
  }
}

function legend() {
  const marks = [['rnb-run rnb-how-ran', 'ran'], ['rnb-call rnb-llm', 'LLM call'], ['rnb-call', 'other call'], ['rnb-run rnb-how-replayed', 'replayed'], ['rnb-run rnb-point', 'skipped'],
    ['rnb-run rnb-how-failed', 'failed or lost'], ['rnb-wait', 'waited for a person'], ['rnb-effect', 'effect']];
  return h('p', { class: 'rnb-legend', 'aria-hidden': 'true' }, marks.map(([kind, name]) => h('span', {}, h('i', { class: kind }), name)));
}

const checkpointOf = run => run.checkpoint ?? run.of;
const bestRun = row => [...row.runs].reverse().find(run => run.checkpoint !== undefined && run.lineage) || row.runs[row.runs.length - 1];

function callTip(call) {
  const cost = call.input || call.output ? ` · ${number(call.input)} + ${number(call.output)} tokens` : '';
  return [`${call.kind === 'llm' ? 'LLM call' : 'call'} ${call.name}`, `${call.phase}${call.ms ? ` · ${duration(call.ms)}` : ''}${cost}`, call.twice && 'asked before', call.why].filter(Boolean).join('\n');
}

function exchangeNode(call, open) {
  const cost = call.input || call.output ? ` · ${number(call.input)} + ${number(call.output)} tokens` : '';
  const title = `${call.model || call.name} · ${call.phase}${call.ms ? ` · ${duration(call.ms)}` : ''}${cost} · row ${call.seq}`;
  const said = ({ role, text, cut }, kind) => h('div', { class: `rnb-message ${kind}` }, h('span', { class: 'rnb-role' }, role), h('pre', {}, text, cut ? `\n… ${number(cut)} more characters` : ''));
  return h('details', { class: 'rnb-exchange', open }, h('summary', {}, title), call.settings && h('p', { class: 'rnb-quiet' }, call.settings),
    call.messages.map(message => said(message, '')), call.answer.text ? said(call.answer, 'rnb-answer') : '', call.why ? h('p', { class: 'rnb-error' }, call.why) : '');
}

// ---------------------------------------------------------------- all threads of a store
class Threads {
  constructor(root, source) { this.source = source; this.root = h('div', { class: 'rnb', 'data-lm-suppress-shortcuts': 'true' }); root.replaceChildren(this.root); this.take(source); }

  take({ threads, version }) {
    this.version = version;
    const sum = name => threads.reduce((total, one) => total + (one[name] || 0), 0);
    const most = Math.max(1, ...threads.map(one => one.input + one.output));
    const titles = ['thread', 'last activity', 'steps', 'waits for a person', 'LLM calls', 'tokens', 'cost', 'open'];
    const focused = document.activeElement && this.root.contains(document.activeElement) ? document.activeElement.dataset.thread : null;
    const rows = threads.map(one => {
      const bar = h('span', { class: 'rnb-bar rnb-in' });
      bar.style.width = `${(40 * (one.input + one.output)) / most}px`;
      const waits = [one.waiting && h('span', { class: 'rnb-chip rnb-is-waiting', title: one.gates.join('\n') }, `‖ ${counted(one.waiting, 'gate')}`), one.doubt && h('span', { class: 'rnb-chip rnb-is-in-doubt' }, `? ${counted(one.doubt, 'effect')} in doubt`)];
      const open = { yes: h('span', { class: 'rnb-live', title: one.who }, one.who), no: '', unknown: h('span', { class: 'rnb-quiet' }, `maybe: ${one.who}`) }[one.open];
      return h('tr', {}, h('td', {}, h('button', { class: 'rnb-link', 'data-thread': one.thread, onclick: () => this.source.open(one.thread) }, one.thread), one.forked && h('span', { class: 'rnb-quiet' }, ` from ${one.forked}`)),
        h('td', {}, when(one.last)), h('td', {}, `${one.done} done${one.unfinished ? `, ${one.unfinished} not` : ''}`), h('td', {}, waits), h('td', { class: 'rnb-num' }, one.calls && number(one.calls)),
        h('td', { class: 'rnb-num' }, one.input + one.output && [bar, ' ', number(one.input + one.output)]), h('td', { class: 'rnb-num' }, one.usd === null ? '?' : one.usd ? money(one.usd) : ''), h('td', {}, open));
    });
    const waiting = [sum('waiting') && counted(sum('waiting'), 'waiting gate'), sum('doubt') && `${counted(sum('doubt'), 'effect')} in doubt`].filter(Boolean);
    this.root.replaceChildren(h('div', { class: 'rnb-title' }, h('h4', {}, this.source.store.split('/').pop()), h('span', { class: 'rnb-quiet' }, [counted(threads.length, 'thread'), counted(sum('calls'), 'LLM call'), `${number(sum('input') + sum('output'))} tokens`, ...waiting].join(' · '))),
      h('div', { class: 'rnb-scrollx' }, h('table', { class: 'rnb-table' }, h('thead', {}, h('tr', {}, titles.map(title => h('th', { class: ['LLM calls', 'tokens', 'cost'].includes(title) && 'rnb-num' }, title)))), h('tbody', {}, rows))), h('p', { class: 'rnb-note', role: 'status' }));
    if (focused) { const again = [...this.root.querySelectorAll('[data-thread]')].find(one => one.dataset.thread === focused); if (again) again.focus(); }
  }

  say(text) { this.root.querySelector('.rnb-note').textContent = text; }
  dispose() {}
}

// ---------------------------------------------------------------- in a file
export function mountPage(root, { picture, changes, calls, left }) {
  const byRun = new Set();
  calls.forEach(call => byRun.add(call.run));
  const source = {
    picture,
    ask: async (what, { runs }) => {
      if (what === 'changes') return { changes };
      const wanted = new Set(runs), found = calls.filter(call => wanted.has(call.run));
      const known = picture.rows.flatMap(row => row.runs).filter(run => wanted.has(run.seq)).reduce((sum, run) => sum + run.count + run.effects, 0);
      return { calls: found, left: Math.max(known - found.length, 0) };
    },
    cut: (count, what) => `${counted(count, what)} of this step ${count === 1 ? 'is' : 'are'} not in this file, which holds only so much: the newest ${number(calls.length)} calls. Open the thread in a notebook to see all.`,
    fork: async (seq, name) => `To make it: resumable-nb fork ${seq} ${quoted(name)} --thread ${quoted(picture.thread)} --db ${quoted(picture.store)}`
  };
  if (left[0]) source.cut = (count, what) => `${counted(count, what)} that this needs ${count === 1 ? 'is' : 'are'} not in this file, which holds only so much.`;
  return new Timeline(root, source);
}

const quoted = text => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// ---------------------------------------------------------------- in a notebook
function render({ model, el }) {
  const asked = new Map();
  let last = 0, view, timer, gone = false, busy = 0, polling = false, hurried = false;
  const ask = (what, more = {}) => new Promise((resolve, reject) => {
    const id = ++last;
    asked.set(id, { resolve, reject });
    model.send({ id, ask: what, ...more });
  });
  const answered = message => {
    const waits = asked.get(message && message.id);
    if (!waits) return;
    asked.delete(message.id);
    if (message.error) waits.reject(new Error(message.error)); else waits.resolve(message.value);
  };
  model.on('msg:custom', answered);
  const source = {
    ask: (what, more) => ask(what, { thread: view.picture.thread, ...more }),
    parents: () => ask('parents', { thread: view.picture.thread }),
    cut: (count, what) => `${counted(count, what)} more: too much to be shown at once.`,
    fork: (seq, name) => ask('fork', { thread: view.picture.thread, seq, name }),
    // the next look asks for them: one question at a time, so that each answer is told from what is shown
    older: rows => {
      view.wanted = rows;
      hurried = polling;
      if (!polling) { clearTimeout(timer); poll(); }
    },
    back: null
  };
  const say = text => { if (view) view.say(text); else el.replaceChildren(h('div', { class: 'rnb rnb-quiet' }, text)); };
  const openThread = async (thread, listed) => {
    try {
      const picture = await ask('picture', { thread });
      if (view) view.dispose();
      view = new Timeline(el, { ...source, picture, back: listed ? openList : null });
    } catch (error) { say(String(error.message || error)); }
  };
  const showList = told => {
    if (view) view.dispose();
    view = new Threads(el, { ...told, store: model.get('store'), open: thread => openThread(thread, true) });
  };
  const openList = async () => {
    try { showList(await ask('threads')); } catch (error) { say(String(error.message || error)); }
  };
  const start = model.get('start');
  if (start.picture) view = new Timeline(el, { ...source, picture: start.picture });
  else if (start.threads) showList(start);
  else { say(`The timeline of ${start.thread} is drawn when the kernel is free …`); openThread(start.thread, false); }

  // One question at a time: a kernel that is busy answers when it is free, and is asked no more until then. Nothing is
  // asked while nobody can see it.
  const poll = async () => {
    if (gone) return;
    polling = true;
    if (view && el.isConnected && !document.hidden && el.getClientRects().length) {
      busy = setTimeout(() => el.classList.add('rnb-behind'), 4000);
      const shown = view;
      try {
        if (view instanceof Timeline) {
          const news = await ask('news', { thread: view.picture.thread, version: view.picture.version, rows: view.wanted });
          if (view === shown) news ? view.take(merged(view.picture, news)) : view.tick();
        } else {
          const news = await ask('news', { version: view.version });
          if (view === shown && news) view.take(news);
        }
      } catch (error) { if (view === shown) view.say(String(error.message || error)); }
      clearTimeout(busy);
      el.classList.remove('rnb-behind');
    }
    polling = false;
    if (!gone) timer = setTimeout(poll, hurried ? 0 : POLL_MS);
    hurried = false;
  };
  timer = setTimeout(poll, POLL_MS);
  return () => { gone = true; clearTimeout(timer); clearTimeout(busy); if (view) view.dispose(); model.off('msg:custom', answered); };
}

// News tell the rows that changed; the others are those that are known.
function merged(picture, news) {
  const rows = news.rows.map(row => (typeof row === 'number' ? picture.rows[row] : row));
  return { ...news, rows };
}

export default { render };
