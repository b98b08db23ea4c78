// Text of figures in the colour of JupyterLab's theme, also after a change of theme. plotly draws it in the grey of
// mudkit's template, which is legible on both grounds but strong on neither.
(window._JUPYTERLAB ??= {}).mudkit = {
  init() {},
  get() {
    const plugin = {
      id: "mudkit:colours",
      autoStart: true,
      activate() {
        const style = document.createElement("style");
        style.textContent = `.jp-Notebook .js-plotly-plot text[style*="fill: rgb(123, 123, 123)"] {
          fill: var(--jp-content-font-color1) !important;
        }`;
        document.head.append(style);
      },
    };
    return Promise.resolve(() => ({ __esModule: true, default: plugin }));
  },
};
