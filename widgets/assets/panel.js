// Keys, accessible names, alternative texts and width of figures, for the panels of a page.
function render({ el }) {
  el.style.display = "none";
  const keep = ({ target }) => {
    if (target.matches?.(".mudkit-panel select")) target.dataset.lmSuppressShortcuts = "true";
  };
  document.addEventListener("focusin", keep);
  const buttons = { "fa-play": "play", "fa-pause": "pause", "fa-stop": "stop", "fa-retweet": "repeat" };
  const set = (element, name, value) => {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  };
  // ipywidgets gives these no names; a slider shows its value as text beside it.
  const name = panel => {
    for (const slider of panel.querySelectorAll(".widget-slider, .widget-hslider")) {
      const handle = slider.querySelector(".noUi-handle");
      const label = slider.querySelector(".widget-label");
      const readout = slider.querySelector(".widget-readout");
      if (!handle) continue;
      set(handle, "aria-label", label?.textContent || "value");
      if (readout) {
        set(handle, "aria-valuetext", readout.textContent);
        set(readout, "aria-label", `${label?.textContent || "value"}, typed`);
        set(readout, "role", "textbox");
      }
    }
    for (const button of panel.querySelectorAll(".widget-play button")) {
      const icon = [...button.firstElementChild?.classList ?? []].find(each => each in buttons);
      if (icon) set(button, "aria-label", buttons[icon]);
    }
  };
  const describe = () => {
    const panel = el.closest(".mudkit-panel");
    if (panel) name(panel);
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      const text = plot.layout?.meta?.alt, drawing = plot.querySelector("svg.main-svg");
      if (!text || !drawing || drawing.getAttribute("aria-label") === text) continue;
      drawing.setAttribute("role", "img");
      drawing.setAttribute("aria-label", text);
    }
  };
  const watch = new MutationObserver(describe);
  let width = 0;
  const fit = new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width === width) return;
    width = contentRect.width;
    window.dispatchEvent(new Event("resize"));  // plotly listens to it
  });
  const begin = () => {
    const panel = el.closest(".mudkit-panel");
    if (panel) {
      watch.observe(panel, { childList: true, subtree: true, characterData: true });
      fit.observe(panel);
    }
    describe();
  };
  const frame = requestAnimationFrame(begin);
  return () => {
    document.removeEventListener("focusin", keep);
    cancelAnimationFrame(frame);
    watch.disconnect();
    fit.disconnect();
  };
}
export default { render };
