"use strict";
const drawings = JSON.parse(document.getElementById("drawings").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Black curves would vanish on a dark page.
function visible(traces) {
  if (!dark.matches) return traces;
  return JSON.parse(JSON.stringify(traces).replaceAll('"#000000"', '"#f0f0f0"').replaceAll("rgba(0,0,0,", "rgba(240,240,240,"));
}

function layoutOf(figure, log) {
  const given = drawings[figure.id].layout;
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--soft"), automargin: true };
  const y = log ? { type: "log", dtick: "D2", tickformat: ".4~g" } : { type: "linear" };
  return {
    ...given,
    xaxis: { ...axis, ...given.xaxis },
    yaxis: { ...axis, ...given.yaxis, ...y },
    margin: { l: 10, r: 12, t: 28, b: 10 },
    legend: { ...given.legend, orientation: "h", yref: "container", y: 0, yanchor: "bottom", xref: "container", x: 0, font: { size: 12 } },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: colour("--ink") },
    hoverlabel: { font: { size: 12 } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--link") },
  };
}

const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]], // none that leaves the page
};

function draw(figure) {
  const button = figure.querySelector("button");
  const log = button.getAttribute("aria-pressed") === "true";
  const plot = figure.querySelector(".plot");
  return Plotly.react(plot, visible(drawings[figure.id].data), layoutOf(figure, log), CONFIG).then(() => {
    figure.dataset.drawn = "yes";
  });
}

// Only what is looked at is drawn: a page may have many figures.
const watcher = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) {
        watcher.unobserve(target);
        draw(target);
      }
    }
  },
  { rootMargin: "400px" },
);

for (const figure of document.querySelectorAll("figure")) {
  const button = figure.querySelector("button");
  button.setAttribute("aria-pressed", String(drawings[figure.id].layout.yaxis.type === "log"));
  button.addEventListener("click", () => {
    const log = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(log));
    // relayout, unlike a new drawing, keeps what was hidden by the legend
    const axis = { "yaxis.type": log ? "log" : "linear", "yaxis.autorange": true };
    Object.assign(axis, { "yaxis.dtick": log ? "D2" : null, "yaxis.tickformat": log ? ".4~g" : null });
    Plotly.relayout(figure.querySelector(".plot"), axis);
  });
  watcher.observe(figure);
}

const filters = [...document.querySelectorAll("[data-filter]")];
function choose() {
  for (const element of document.querySelectorAll("[data-where]")) {
    const where = JSON.parse(element.dataset.where);
    element.hidden = filters.some(({ dataset, value }) => value && where[dataset.filter] !== undefined && where[dataset.filter] !== value);
  }
  for (const section of document.querySelectorAll("section:has([data-where])")) {
    section.hidden = !section.querySelector("[data-where]:not([hidden])");
  }
}
for (const filter of filters) filter.addEventListener("change", choose);
choose(); // a browser may remember the choice when the page is loaded again

dark.addEventListener("change", () => document.querySelectorAll("figure[data-drawn]").forEach(draw));
