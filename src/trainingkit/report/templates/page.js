"use strict";
(function () {
  const narrow = window.matchMedia("(max-width: 640px)").matches;
  const touch = window.matchMedia("(pointer: coarse)").matches;

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function look() {
    const text = colour("--text"), grid = colour("--grid"), line = colour("--line"), card = colour("--card");
    const change = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": text,
      "hoverlabel.bgcolor": card, "hoverlabel.bordercolor": line, "hoverlabel.font.color": text,
    };
    for (const axis of ["xaxis", "yaxis"]) {
      change[axis + ".gridcolor"] = grid;
      change[axis + ".linecolor"] = line;
    }
    return change;
  }

  function put(layout, dotted, value) {
    const keys = dotted.split(".");
    const last = keys.pop();
    let at = layout;
    for (const key of keys) at = at[key] = at[key] || {};
    at[last] = value;
  }

  function fail(box, error) {
    box.textContent = "This plot could not be drawn: " + (error && error.message ? error.message : error);
    box.classList.add("plot-error");
    box.style.height = "auto";
    box.dataset.drawn = "false";
  }

  async function draw(box, given) {
    const figure = structuredClone(given), layout = figure.layout;
    for (const trace of figure.data) {
      if (trace.line && trace.line.color === "text") trace.line.color = colour("--text");
    }
    layout.font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif", size: 13 };
    layout.height = figure.height + (narrow && figure.data.length > 4 ? 60 : 0);
    layout.dragmode = touch || narrow ? false : "zoom";
    for (const [dotted, value] of Object.entries(look())) put(layout, dotted, value);
    box.style.height = layout.height + "px";
    await Plotly.newPlot(box, figure.data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
    box.dataset.drawn = "true";
  }

  const figures = JSON.parse(document.getElementById("figures").textContent);

  function drawAll() {
    for (const figure of figures) {
      const box = document.getElementById(figure.name);
      draw(box, figure).catch((error) => fail(box, error));
    }
  }

  drawAll();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
