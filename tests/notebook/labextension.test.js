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

class Panel {
  constructor(cells, kernel) {
    this.content = { model: { sharedModel: { cells } } };
    this.context = { path: 'drive:folder/nb.ipynb', localPath: 'folder/nb.ipynb' };
    this.sessionContext = { session: kernel && { kernel }, kernelChanged: new Signal(), sessionChanged: new Signal() };
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
