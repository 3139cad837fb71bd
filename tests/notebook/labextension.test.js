// Loads the extension as JupyterLab does (a module-federation container), with as much of a front end as it touches.
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const test = require('node:test');
const vm = require('node:vm');

class Signal {
  slots = [];
  connect(slot) { this.slots.push(slot); }
  emit(...args) { this.slots.forEach(slot => slot(...args)); }
}

class Kernel {
  sent = [];
  requestExecute(content, disposeOnDone, metadata) { this.sent.push({ content, disposeOnDone, metadata }); return 'future'; }
}

const cell = (id, text, cell_type = 'code') => ({ id, cell_type, getSource: () => text });

class List {
  constructor(items) { this.items = items; }
  get length() { return this.items.length; }
  get(place) { return this.items[place]; }
  set(place, value) { this.items[place] = { toJSON: () => value }; }
}

const shows = (...outputs) => ({ outputs: new List(outputs.map(output => ({ toJSON: () => output }))) });

class Panel {
  constructor(cells, kernel, models = []) {
    this.content = { model: { sharedModel: { cells }, cells: new List(models) } };
    this.context = { path: 'drive:folder/nb.ipynb', localPath: 'folder/nb.ipynb', ready: Promise.resolve() };
    this.sessionContext = {
      session: kernel && { kernel }, ready: Promise.resolve(),
      kernelChanged: new Signal(), sessionChanged: new Signal(), statusChanged: new Signal()
    };
  }
}

const activated = async (panels = []) => {
  const window = {}, warnings = [];
  vm.runInNewContext(fs.readFileSync(process.env.REMOTE_ENTRY, 'utf8'), { window, console: { warn: (...a) => warnings.push(a) } });
  const manifest = JSON.parse(fs.readFileSync(process.env.PACKAGE_JSON, 'utf8'));
  const container = window._JUPYTERLAB[manifest.name];
  const notebook = { INotebookTracker: Symbol('tracker') };
  const versions = { '4.0.0': { get: async () => () => ({}) }, '4.6.0': { loaded: 1, get: async () => () => notebook } };
  await container.init({ '@jupyterlab/notebook': versions });
  const module = (await container.get(manifest.jupyterlab._build.extension))();
  const plugin = module.default, tracker = { forEach: f => panels.forEach(f), widgetAdded: new Signal() };
  assert.deepEqual([...plugin.requires], [notebook.INotebookTracker]);
  assert.equal(plugin.autoStart, true);
  plugin.activate({}, tracker);
  return { tracker, warnings };
};

const plain = value => JSON.parse(JSON.stringify(value)); // objects of another realm are never deepEqual

test('an execute request carries order, texts and path', async () => {
  const kernel = new Kernel();
  await activated([new Panel([cell('a', 'x = 1'), cell('m', '# text', 'markdown'), cell('b', 'y')], kernel)]);
  assert.equal(kernel.requestExecute({ code: 'y' }, false, { cellId: 'b', trusted: true }), 'future');
  assert.deepEqual(plain(kernel.sent), [{
    content: { code: 'y' }, disposeOnDone: false,
    metadata: { cellId: 'b', trusted: true, cellOrder: ['a', '~m', 'b'], cellSources: ['x = 1', null, 'y'], notebookPath: 'folder/nb.ipynb' }
  }]);
});

test('the order is that of the moment', async () => {
  const kernel = new Kernel(), panel = new Panel([cell('a', '1'), cell('b', '2')], kernel);
  await activated([panel]);
  panel.content.model.sharedModel.cells = [cell('b', '2'), cell('a', '3'), cell('c', '')];
  kernel.requestExecute({}, false, { cellId: 'a' });
  assert.deepEqual(plain(kernel.sent[0].metadata.cellOrder), ['b', 'a', 'c']);
  assert.deepEqual(plain(kernel.sent[0].metadata.cellSources), ['2', '3', '']);
});

test('long texts are not sent', async () => {
  const kernel = new Kernel();
  await activated([new Panel([cell('a', 'x'.repeat(600_000)), cell('b', 'y'.repeat(600_000))], kernel)]);
  kernel.requestExecute({}, false, { cellId: 'a' });
  assert.deepEqual(Object.keys(kernel.sent[0].metadata), ['cellId', 'cellOrder', 'notebookPath']);
});

for (const metadata of [undefined, {}, { trusted: true }]) {
  test(`a request that is no cell stays as it is: ${JSON.stringify(metadata)}`, async () => {
    const kernel = new Kernel();
    await activated([new Panel([cell('a', '1')], kernel)]);
    kernel.requestExecute({ silent: true }, true, metadata);
    assert.deepEqual(plain(kernel.sent[0].metadata), metadata || {});
  });
}

test('new notebooks, kernels and sessions are followed, each once', async () => {
  const { tracker } = await activated(), panel = new Panel([cell('a', '1')], null);
  tracker.widgetAdded.emit(tracker, panel);
  for (const kernel of [new Kernel(), new Kernel()]) {
    panel.sessionContext.session = { kernel };
    panel.sessionContext.kernelChanged.emit();
    panel.sessionContext.sessionChanged.emit();
    const patched = kernel.requestExecute;
    panel.sessionContext.kernelChanged.emit();
    assert.equal(kernel.requestExecute, patched);
    kernel.requestExecute({}, false, { cellId: 'a' });
    assert.deepEqual(plain(kernel.sent[0].metadata.cellOrder), ['a']);
  }
});

test('a failure to tell the order never stops a cell', async () => {
  const kernel = new Kernel(), panel = new Panel([{ id: 'a', cell_type: 'code' }], kernel);
  const { warnings } = await activated([panel]);
  kernel.requestExecute({}, false, { cellId: 'a' });
  panel.content.model = null;
  kernel.requestExecute({}, false, { cellId: 'a' });
  assert.deepEqual(plain(kernel.sent.map(s => s.metadata)), [{ cellId: 'a' }, { cellId: 'a' }]);
  assert.equal(warnings.length, 1);
});

const WIDGET = 'application/vnd.jupyter.widget-view+json';
const output = (says, model_id) => ({
  output_type: 'display_data', metadata: { resumable_nb: { says }, other: 1 },
  data: { 'text/plain': 'plain', 'text/html': ['<b>ra', 'ther</b>'], ...(model_id ? { [WIDGET]: { model_id } } : {}) }
});
const foreign = { output_type: 'display_data', metadata: {}, data: { 'text/plain': 'mine', [WIDGET]: { model_id: 'x' } } };
const stream = { output_type: 'stream', name: 'stdout', text: 'text' };
const at = (panel, cell, place) => plain(panel.content.model.cells.get(cell).outputs.get(place).toJSON());
const isOld = one => Boolean(one.metadata.resumable_nb.old);

for (const status of ['restarting', 'autorestarting', 'dead', 'terminating']) {
  test(`when its kernel is ${status}, each panel says that it is old, once, and has no widget`, async () => {
    const panel = new Panel([], new Kernel(), [{}, shows(stream, output('gate', 'g'), foreign), shows(output('resume'), output('line'))]);
    await activated([panel]);
    panel.sessionContext.statusChanged.emit(null, 'busy');
    assert.equal(isOld(at(panel, 1, 1)), false);
    for (let n = 0; n < 2; n++) panel.sessionContext.statusChanged.emit(null, status);
    const gate = at(panel, 1, 1);
    assert.deepEqual(gate.metadata, { resumable_nb: { says: 'gate', old: true }, other: 1 });
    assert.deepEqual(Object.keys(gate.data), ['text/plain', 'text/html']);
    assert.match(gate.data['text/plain'], /^This panel is old: .*Run this cell again to decide\.\nplain$/);
    assert.equal(gate.data['text/html'].split('This panel is old').length, 2);
    assert.match(gate.data['text/html'], /<b>rather<\/b>$/);
    assert.match(at(panel, 2, 0).data['text/plain'], /it tells of a kernel that has ended/);
    assert.deepEqual([at(panel, 1, 0), at(panel, 1, 2), at(panel, 2, 1)], plain([stream, foreign, output('line')]));
  });
}

test('another kernel makes panels old, the first one does not', async () => {
  const panel = new Panel([], new Kernel(), [shows(output('doubt', 'd'))]);
  await activated([panel]);
  panel.sessionContext.kernelChanged.emit(null, { oldValue: null, newValue: {} });
  assert.equal(isOld(at(panel, 0, 0)), false);
  panel.sessionContext.kernelChanged.emit(null, { oldValue: {}, newValue: {} });
  assert.equal(isOld(at(panel, 0, 0)), true);
});

test('in a notebook that is opened, panels are old whose widgets the kernel does not have', async () => {
  const kernel = new Kernel();
  kernel.requestCommInfo = async () => ({ content: { comms: { alive: {} } } });
  const panel = new Panel([], kernel, [shows(output('gate', 'alive'), output('doubt', 'gone'), output('resume'))]);
  await activated([panel]);
  await new Promise(setImmediate);
  assert.deepEqual([0, 1, 2].map(n => isOld(at(panel, 0, n))), [false, true, false]);
});
