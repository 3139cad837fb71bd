// Adds to each execute request of a notebook: `cellOrder` (the ids of all cells, "~" before those that are no code),
// `cellSources` (their texts, null for no code; left out when they are long) and `notebookPath`. The kernel's part reads
// them in notebook/order.py. And tells old panels: a gate, a resume, an effect in doubt that a kernel showed which has
// ended. A module-federation container written by hand: nothing has to be built.
(() => {
  'use strict';
  const NAME = 'resumable-nb';
  const SOURCES_LIMIT = 1e6; // characters; the kernel then takes texts from the saved file
  const WIDGET = 'application/vnd.jupyter.widget-view+json';
  const ENDED = ['restarting', 'autorestarting', 'terminating', 'dead'];
  const OLD = {
    gate: 'This panel is old: its kernel has ended, and its buttons would do nothing. Run this cell again to decide.',
    doubt: 'This panel is old: its kernel has ended, and its buttons would do nothing. Run this cell again.',
    timeline: 'This picture is old: the kernel that drew it has ended. Run this cell again to look closer.',
    resume: 'This panel is old: it tells of a kernel that has ended. Run this cell again.'
  };
  const MARK = 'border-left:3px solid var(--jp-warn-color1,#b60);padding:.2em .8em;margin:.4em 0;' +
    'color:var(--jp-content-font-color1,inherit);font-family:var(--jp-ui-font-family,sans-serif)';
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

  // Our panels that are not known to be old: [outputs of a cell, place, what it is, its widget].
  const shown = panel => {
    const found = [], cells = panel.content.model && panel.content.model.cells;
    for (let i = 0; cells && i < cells.length; i++) {
      const outputs = cells.get(i).outputs;
      for (let j = 0; outputs && j < outputs.length; j++) {
        const { data, metadata } = outputs.get(j).toJSON();
        const ours = metadata && metadata.resumable_nb;
        if (ours && OLD[ours.says] && !ours.old) found.push({ outputs, j, says: ours.says, widget: data[WIDGET] });
      }
    }
    return found;
  };

  // What stands for the widgets takes their place, in the file too: a dead kernel's buttons are never to be had again.
  const age = ({ outputs, j, says }) => {
    const output = outputs.get(j).toJSON(), data = { ...output.data }, text = OLD[says];
    delete data[WIDGET];
    data['text/plain'] = `${text}\n${[].concat(data['text/plain'] || '').join('')}`;
    data['text/html'] = `<div style="${MARK}"><b>${text}</b></div>${[].concat(data['text/html'] || '').join('')}`;
    const metadata = { ...output.metadata, resumable_nb: { ...output.metadata.resumable_nb, old: true } };
    outputs.set(j, { ...output, data, metadata });
  };

  const ageAll = panel => {
    try {
      shown(panel).forEach(age);
    } catch (error) {
      console.warn(`${NAME}: old panels are not marked`, error);
    }
  };

  // A notebook was opened: panels whose widgets its kernel does not have are of an earlier one.
  const ageOpened = async panel => {
    try {
      await panel.context.ready;
      await panel.sessionContext.ready;
      const session = panel.sessionContext.session, kernel = session && session.kernel;
      const before = shown(panel).filter(one => one.widget);
      if (!before.length) return;
      const reply = kernel && (await kernel.requestCommInfo({ target_name: 'jupyter.widget' }));
      const alive = (reply && reply.content.comms) || {};
      const dead = before.filter(one => !alive[one.widget.model_id]).map(one => one.widget.model_id);
      shown(panel).filter(one => one.widget && dead.includes(one.widget.model_id)).forEach(age);
    } catch (error) {
      console.warn(`${NAME}: old panels are not marked`, error);
    }
  };

  const follow = panel => {
    place(panel);
    panel.sessionContext.kernelChanged.connect((_, change) => {
      place(panel);
      if (change && change.oldValue) ageAll(panel);
    });
    panel.sessionContext.sessionChanged.connect(() => place(panel));
    panel.sessionContext.statusChanged.connect((_, status) => {
      if (ENDED.includes(status)) ageAll(panel);
    });
    ageOpened(panel);
  };

  const plugin = async () => {
    const { INotebookTracker } = await load('@jupyterlab/notebook');
    const found = {
      id: `${NAME}:plugin`,
      description: 'Tells the kernel where each cell stands in the notebook, and a person which panels are old',
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
