// The page's behaviour: draws the figures, keeps them in the page's theme, prints, saves the JSON.
(() => {
  "use strict";
  const root = document.documentElement;
  const data = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = data("figures");
  const colorway = data("colors");
  const plots = figures.map((_, i) => document.getElementById(`plot-${i + 1}`));
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = document.getElementById("theme");
  const saveButton = document.getElementById("save");

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

  // What a figure leaves unset, in the page's own colours; what it sets itself comes first.
  function template() {
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = {
      gridcolor: color("grid"), linecolor: color("faint"), zerolinecolor: color("rule"),
      tickcolor: color("faint"), automargin: true, title: { standoff: 12, font: { size: 13 } },
    };
    const axis3d = { ...axis, backgroundcolor: "rgba(0,0,0,0)", showspikes: false };
    delete axis3d.automargin;
    axis3d.title = { font: { size: 13 } };
    const scale = { colorscale: "Cividis", colorbar: { outlinewidth: 0 } };
    return {
      data: { heatmap: [scale], surface: [scale] },
      layout: {
        paper_bgcolor: color("paper"), plot_bgcolor: "rgba(0,0,0,0)", colorway,
        font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("ink") },
        margin: { t: 48, r: 16, b: 48, l: 56 },
        xaxis: axis, yaxis: axis, scene: { xaxis: axis3d, yaxis: axis3d, zaxis: axis3d },
        legend: { orientation: "h", x: 0, y: 0.99, yref: "container", yanchor: "top",
                  bgcolor: "rgba(0,0,0,0)" },
        hoverlabel: { bgcolor: color("paper"), bordercolor: color("faint"),
                      font: { color: color("ink") } },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: color("faint"), activecolor: color("ink") },
      },
    };
  }

  // One button, to save the plot as an image: plotly's own choice includes one that uploads it.
  const config = {
    responsive: true, displaylogo: false, modeBarButtons: [["toImage"]], showSendToCloud: false,
    plotlyServerURL: "",
  };
  function draw(size = {}) {
    plots.forEach((plot, i) => {
      const { data, layout } = structuredClone(figures[i]); // plotly writes into what it is given
      const settings = { template: template(), uirevision: "kept", ...size };
      Plotly.react(plot, data, { ...layout, ...settings }, config);
    });
  }

  function applyTheme() {
    themeButton.textContent = isDark() ? "Light theme" : "Dark theme";
    draw();
  }
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    applyTheme();
  });
  systemDark.addEventListener("change", applyTheme);

  // Paper is white, narrower than most windows, and cannot open what is closed.
  const PRINT_WIDTH = 640;
  let before = null;
  addEventListener("beforeprint", () => {
    const closed = [...document.querySelectorAll("details:not([open])")];
    before = { theme: root.dataset.theme, closed };
    closed.forEach((details) => { details.open = true; });
    root.dataset.theme = "light";
    draw({ width: PRINT_WIDTH });
  });
  addEventListener("afterprint", () => {
    if (before === null) return;
    before.closed.forEach((details) => { details.open = false; });
    if (before.theme) root.dataset.theme = before.theme;
    else delete root.dataset.theme;
    before = null;
    applyTheme();
    plots.forEach((plot) => Plotly.Plots.resize(plot));
  });

  saveButton.addEventListener("click", () => {
    const text = JSON.stringify(data("document"), null, 2);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "results.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });

  themeButton.hidden = false;
  saveButton.hidden = false;
  applyTheme();
})();
