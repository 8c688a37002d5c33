// A canvas in a page: draws the figure it is sent, again whenever a part of it changed, and makes pictures of it.
// Plotly's script comes from the kernel, once per page, so that nothing is fetched from anywhere else.

const CONFIG = { responsive: false, displaylogo: false };
const SCALE = 2;
const NARROWEST = 120;

async function fetchPlotly(model) {
  const id = model.get("library").slice("IPY_MODEL_".length);
  const library = await model.widget_manager.get_model(id);
  const unpacked = new Blob([library.get("script")]).stream().pipeThrough(new DecompressionStream("deflate"));
  const script = await new Response(unpacked).text();
  const url = URL.createObjectURL(
    new Blob(["const module={exports:{}};", script, ";export default module.exports;"], { type: "text/javascript" }),
  );
  const before = globalThis.Plotly; // another version may be at home in this page
  try {
    return (await import(url)).default;
  } finally {
    if (before !== undefined) globalThis.Plotly = before;
    URL.revokeObjectURL(url);
  }
}

function plotly(model) {
  globalThis.__somatizePlotly ??= fetchPlotly(model);
  return globalThis.__somatizePlotly;
}

function unpacked(text, numbers) {
  return JSON.parse(text, (_, value) => {
    if (value === null || typeof value !== "object" || Object.keys(value).length !== 1 || !("numbers" in value)) {
      return value;
    }
    const { buffer, byteOffset, byteLength } = numbers[value.numbers];
    return new Float64Array(buffer.slice(byteOffset, byteOffset + byteLength));
  });
}

// What was drawn stays in the page under the id of its canvas: where a notebook puts the same output up again, the
// new view takes the plot over as it is, and nothing flickers.
const plots = (globalThis.__somatizePlots ??= new Map());

function takeOver(key, el) {
  const known = (plots.get(key) ?? []).filter((one) => !one.gone);
  const free = known.find((one) => !one.el.isConnected);
  plots.set(key, known);
  if (free) {
    free.el = el;
    el.append(free.gd);
    return free;
  }
  const gd = document.createElement("div");
  gd.style.width = "100%";
  el.append(gd);
  const made = { el, gd, parts: new Map(), gone: false };
  known.push(made);
  return made;
}

function figureOf(model, plot) {
  const part = (name) => {
    const text = model.get(`${name}_text`);
    const numbers = model.get(`${name}_numbers`) ?? [];
    const known = plot.parts.get(name);
    if (known && known.text === text && known.numbers === numbers) return known.value;
    const value = unpacked(text, numbers);
    plot.parts.set(name, { text, numbers, value });
    return value;
  };
  const names = Array.from({ length: model.get("traces") }, (_, place) => `trace_${place}`);
  const data = names.filter((name) => model.get(`${name}_text`)).map(part); // others are still on their way
  return { data, layout: { ...part("layout"), autosize: true, uirevision: "live" } };
}

// A saved notebook that is opened again without its kernel: JupyterLab then asks for the canvas and not for the picture
// beside it in the output. So the notebook also holds, once for all its canvases, a model that is made when it opens
// and stands in for them, showing those pictures. Where the page is no JupyterLab, none of this happens.
const STAND_INS = "somatize-pictures";
const STATE = "application/vnd.jupyter.widget-state+json";
const VIEW = "application/vnd.jupyter.widget-view+json";

function* outputsOf(notebook) {
  for (const cell of notebook?.cells ?? []) {
    for (let place = 0; place < (cell.outputs?.length ?? 0); place += 1) yield cell.outputs.get(place).data;
  }
}

function optionsOf(model) {
  const keys = ["model_name", "model_module", "model_module_version"];
  return Object.fromEntries(keys.map((key) => [key, model.get(`_${key}`)]));
}

function leaveStandIn(model) {
  const notebook = model.widget_manager?.context?.model;
  if (!notebook?.getMetadata || !notebook.setMetadata) return;
  const shown = new Set([...outputsOf(notebook)].map((data) => data[VIEW]?.model_id));
  const widgets = notebook.getMetadata("widgets") ?? {};
  const saved = widgets[STATE] ?? { version_major: 2, version_minor: 0, state: {} };
  const known = saved.state[STAND_INS]?.state.canvases ?? [];
  if (known.includes(model.get("canvas"))) return;
  const own = ["_esm", "_anywidget_id", "_model_name", "_model_module", "_model_module_version"];
  const state = Object.fromEntries(own.map((key) => [key, model.get(key)]));
  state.canvases = [...known.filter((id) => shown.has(id)), model.get("canvas")];
  const one = { ...optionsOf(model), state };
  notebook.setMetadata("widgets", { ...widgets, [STATE]: { ...saved, state: { ...saved.state, [STAND_INS]: one } } });
}

function initialize({ model }) {
  const canvases = model.get("canvases");
  const manager = model.widget_manager;
  if (!canvases || !manager?.has_model) return;
  for (const data of outputsOf(manager.context?.model)) {
    const model_id = data[VIEW]?.model_id;
    if (!canvases.includes(model_id) || !data["image/png"] || manager.has_model(model_id)) continue;
    const options = optionsOf(model);
    const view = { _view_name: "AnyView", _view_module: "anywidget", _view_module_version: options.model_module_version };
    const state = { _esm: model.get("_esm"), _anywidget_id: model.get("_anywidget_id"), picture: data["image/png"] };
    manager.new_model({ ...options, model_id }, { ...view, ...state });
  }
}

function showPicture(picture, el) {
  const shown = document.createElement("img");
  shown.src = `data:image/png;base64,${picture}`;
  shown.style.maxWidth = "100%";
  shown.style.width = "900px";
  el.append(shown);
}

async function render({ model, el }) {
  if (model.get("picture")) return showPicture(model.get("picture"), el);
  const Plotly = await plotly(model);
  const plot = takeOver(model.get("canvas"), el);
  let drawing = null;
  let again = false;

  async function draw() {
    const { data, layout } = figureOf(model, plot);
    await Plotly.react(plot.gd, data, layout, CONFIG);
    plot.gd.dataset.pushed = model.get("pushed");
  }

  async function answer() {
    const asked = model.get("asked") ?? 0;
    if (asked <= (plot.answered ?? 0) || !plot.gd._fullLayout) return;
    plot.answered = asked;
    const { width, height } = plot.gd._fullLayout;
    const png = await Plotly.toImage(plot.gd, { format: "png", width: Math.max(width, 400), height, scale: SCALE });
    model.send({ said: "picture", asked, png: png.slice(png.indexOf(",") + 1) });
    leaveStandIn(model);
  }

  function redraw() {
    again = true;
    if (el.clientWidth < NARROWEST) return;
    drawing ??= (async () => {
      try {
        while (again && !plot.gone) {
          again = false;
          await draw();
          await answer();
        }
      } finally {
        drawing = null;
      }
    })();
  }

  // Drawn once there is room: a page puts the element in its place after this function has returned, and what is
  // drawn without room keeps the margins that it needed there.
  let width = plot.gd._fullLayout ? el.clientWidth : 0;
  const resized = new ResizeObserver(() => {
    if (el.clientWidth < NARROWEST || el.clientWidth === width) return;
    width = el.clientWidth;
    if (again || !plot.gd._fullLayout) redraw();
    else Plotly.Plots.resize(plot.gd);
  });
  resized.observe(el);
  model.on("change:pushed", redraw);
  model.on("change:asked", redraw);
  redraw();
  model.send({ said: "here" });

  return () => {
    resized.disconnect();
    model.off("change:pushed", redraw);
    model.off("change:asked", redraw);
    if (plot.el === el) {
      plot.gone = true;
      Plotly.purge(plot.gd);
      plots.set(model.get("canvas"), (plots.get(model.get("canvas")) ?? []).filter((one) => one !== plot));
    }
  };
}

export default { initialize, render };
