// plotly.js, loaded once for all figures of a page, and the state of a figure that has missed changes.
export default () => {
  let drawing;
  return {
    initialize({ model }) {
      let isBehind = false;
      for (const change of ["addTraces", "deleteTraces", "restyle", "relayout", "update"])
        model.on(`change:_py2js_${change}`, () => { isBehind = true; });
      const load = () => {
        const text = new Blob([model.get("_bundle")], { type: "text/javascript" });
        return import(URL.createObjectURL(text));
      };
      const catchUp = () => new Promise(resolve => {
        model.on("change:_widget_data change:_widget_layout", resolve);
        model.send({ type: "state" });
        setTimeout(resolve, 5000);  // the kernel may be gone
      });
      drawing = (globalThis.mudkitPlotly ??= load()).then(async bundle => {
        if (isBehind) await catchUp();
        const figure = bundle.default();
        figure.initialize({ model });
        return figure;
      });
    },
    async render({ model, el }) {
      return (await drawing).render({ model, el });
    },
  };
};
