// Adds to each execute request of a notebook: `cellOrder` (the ids of all cells, "~" before those that are no code),
// `cellSources` (their texts, null for no code; left out when they are long) and `notebookPath`. The kernel's part reads
// them in notebook/order.py. A module-federation container written by hand: nothing has to be built.
(() => {
  'use strict';
  const NAME = 'resumable-nb';
  const SOURCES_LIMIT = 1e6; // characters; the kernel then takes texts from the saved file
  const placed = new WeakSet(); // kernel connections that send the order
  let shared;

  const load = async name => {
    const versions = (shared && shared[name]) || {};
    const version = Object.keys(versions).find(v => versions[v].loaded) || Object.keys(versions)[0];
    if (version === undefined) throw new Error(`${NAME}: this front end has no ${name}`);
    return (await versions[version].get())();
  };

  const places = panel => {
    const notebook = panel.content.model && panel.content.model.sharedModel;
    if (!notebook) return {};
    const cells = Array.from(notebook.cells);
    const isCode = cell => cell.cell_type === 'code';
    const sources = cells.map(cell => (isCode(cell) ? cell.getSource() : null));
    const size = sources.reduce((sum, text) => sum + (text === null ? 0 : text.length), 0);
    return {
      cellOrder: cells.map(cell => (isCode(cell) ? '' : '~') + cell.id),
      ...(size <= SOURCES_LIMIT ? { cellSources: sources } : {}),
      notebookPath: panel.context.localPath || panel.context.path
    };
  };

  const place = panel => {
    const session = panel.sessionContext.session;
    const kernel = session && session.kernel;
    if (!kernel || placed.has(kernel)) return;
    placed.add(kernel);
    const requestExecute = kernel.requestExecute;
    kernel.requestExecute = function (content, disposeOnDone, metadata) {
      let more = {};
      try {
        if (metadata && metadata.cellId) more = places(panel);
      } catch (error) {
        console.warn(`${NAME}: the order of the cells is not sent`, error); // the cell itself must run
      }
      return requestExecute.call(this, content, disposeOnDone, { ...metadata, ...more });
    };
  };

  const follow = panel => {
    place(panel);
    panel.sessionContext.kernelChanged.connect(() => place(panel));
    panel.sessionContext.sessionChanged.connect(() => place(panel));
  };

  const plugin = async () => {
    const { INotebookTracker } = await load('@jupyterlab/notebook');
    const found = {
      id: `${NAME}:plugin`,
      description: 'Tells the kernel where each cell stands in the notebook',
      autoStart: true,
      requires: [INotebookTracker],
      activate: (app, tracker) => {
        tracker.forEach(follow);
        tracker.widgetAdded.connect((_, panel) => follow(panel));
      }
    };
    return () => ({ __esModule: true, default: found });
  };

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB[NAME] = { init: scope => { shared = scope; }, get: () => plugin() };
})();
