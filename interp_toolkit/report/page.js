// The page's behaviour: unpacks plotly.js; draws the figures that are in sight, in the page's theme
// and as wide as their texts need; sorts, filters and copies tables; prints; saves the JSON.
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

  let before = null; // what printing puts back

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

  // What a figure leaves unset, in the page's own colours; what it sets itself comes first.
  function template(narrow) {
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = {
      gridcolor: color("grid"), linecolor: color("faint"), zerolinecolor: color("rule"),
      tickcolor: color("faint"), automargin: true, title: { standoff: 12, font: { size: 13 } },
    };
    const axis3d = { ...axis, backgroundcolor: "rgba(0,0,0,0)", showspikes: false };
    delete axis3d.automargin;
    axis3d.title = { font: { size: 13 } };
    const colorbar = { outlinewidth: 0, title: { side: "right" }, thickness: narrow ? 14 : 24 };
    const scale = { colorscale: "Cividis", colorbar };
    return {
      data: { heatmap: [scale], surface: [scale] },
      layout: {
        paper_bgcolor: color("paper"), plot_bgcolor: "rgba(0,0,0,0)", colorway,
        font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("ink") },
        margin: { t: narrow ? 72 : 48, r: 16, b: 48, l: 56 },
        xaxis: axis, yaxis: axis, scene: { xaxis: axis3d, yaxis: axis3d, zaxis: axis3d },
        // of a narrow plot below its buttons, of others beside them
        legend: { orientation: "h", x: 0, y: narrow ? 0.92 : 0.99, yref: "container", yanchor: "top",
                  bgcolor: "rgba(0,0,0,0)" },
        hoverlabel: { bgcolor: color("paper"), bordercolor: color("faint"),
                      font: { color: color("ink") } },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: color("faint"), activecolor: color("ink") },
      },
    };
  }

  // Two buttons, to save the plot as an image: plotly's own choice includes one that uploads it.
  const asVectors = {
    name: "svg", title: "Download plot as an SVG",
    click: (plot) => Plotly.downloadImage(plot, { format: "svg", filename: "plot" }),
  };
  const config = () => ({
    displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtons: [["toImage", { ...asVectors, icon: Plotly.Icons.disk }]],
  });
  const inSight = (plot) => !plot.closest("details:not([open])");
  const NARROW = 480; // pixels
  const WIDTHS = [480, 640, 800, 1000]; // of a plot whose texts do not fit into its box

  function draw(size = {}, among = plots) {
    if (!globalThis.Plotly) return;
    among.filter(inSight).forEach((plot) => { // the others are drawn when their group is opened
      const space = plot.clientWidth;
      const widths = size.width ? [size.width] : [space, ...WIDTHS.filter((width) => width > space)];
      for (const width of widths) {
        const given = figures[plots.indexOf(plot)];
        const { data, layout } = structuredClone(given); // plotly writes into what it is given
        const settings = { template: template(width < NARROW), uirevision: "kept", width };
        Plotly.react(plot, data, { ...layout, ...settings }, config());
        if (!crowded(plot)) break;
      }
      const scrolls = plot.scrollWidth > plot.clientWidth + 1;
      if (scrolls) plot.tabIndex = 0; // by keyboard as well
      else plot.removeAttribute("tabindex");
    });
  }

  // Whether texts of a plot lie outside it, or headings and legend entries on one another.
  function crowded(plot) {
    const svg = plot.querySelector(".main-svg");
    if (!svg) return false;
    const of = (selector) => [...plot.querySelectorAll(selector)]
      .map((text) => text.getBoundingClientRect()).filter((box) => box.width > 0);
    const edge = svg.getBoundingClientRect();
    const outside = (box) => box.left < edge.left - 1 || box.right > edge.right + 1;
    const headings = of(".annotation-text");
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    return of("svg text:not(.scatterlayer *)").some(outside) // points' names leave by zooming
      || headings.some((a, i) => headings.slice(i + 1).some((b) => meet(a, b)));
  }

  // What a narrow window changes; plotly's own way would keep a width that was set.
  let resized = null;
  let drawnWidth = innerWidth;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      if (innerWidth === drawnWidth || before !== null) return; // a phone's bars come and go
      drawnWidth = innerWidth;
      draw();
    }, 150);
  });

  // plotly.js is in the page by gzip and base64, and runs since the page's policy lists its hash.
  async function unpack() {
    const packed = document.getElementById("plotly");
    if (!packed) return;
    try {
      const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      if (!globalThis.Plotly) throw new Error("plotly.js did not run");
      draw();
    } catch (error) {
      console.error(error);
      plots.forEach((plot) => {
        plot.className = "plot undrawn";
        plot.textContent = "This browser cannot draw the figure (it needs DecompressionStream, in "
          + "browsers since 2023). Its numbers are in the tables and in the JSON below.";
      });
    }
  }
  document.addEventListener("toggle", (event) => {
    const opened = event.target.open && before === null;
    if (opened) draw({}, [...event.target.querySelectorAll(".plot")]);
  }, true); // toggle does not bubble

  // A link to a figure opens the groups that the figure lies in.
  function lead(address) {
    const target = address.startsWith("#figure-") && document.getElementById(address.slice(1));
    if (!target) return;
    for (let group = target.closest("details"); group; group = group.parentElement.closest("details")) {
      group.open = true;
    }
    draw({}, [...target.querySelectorAll(".plot")]);
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#figure-']");
    const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey; // a tab or window of its own
    if (link && !elsewhere) setTimeout(() => lead(link.getAttribute("href"))); // after the browser's own jump
  });

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
  });

  // Tables: a click on a heading sorts, by number where all are numbers, what is missing last; a
  // word filters the rows of a long one; a button copies what is shown, as tab-separated lines.
  const LONG = 12;
  const textOf = (row, column) => row.children[column].textContent;
  const numberOf = (text) => Number(text.replace(/%$/, ""));
  const isMissing = (text) => text === "–" || text === "";

  function sort(table, column, heading) {
    const body = table.tBodies[0];
    const down = heading.getAttribute("aria-sort") === "ascending";
    const rows = [...body.rows];
    const known = rows.filter((row) => !isMissing(textOf(row, column)));
    const missing = rows.filter((row) => isMissing(textOf(row, column)));
    const numeric = known.every((row) => Number.isFinite(numberOf(textOf(row, column))));
    known.sort((a, b) => {
      const [x, y] = [textOf(a, column), textOf(b, column)];
      const order = numeric ? numberOf(x) - numberOf(y) : x.localeCompare(y, "en", { numeric: true });
      return down ? -order : order;
    });
    table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...known, ...missing);
  }

  function copied(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("aria-hidden", "true");
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy"); // where there is no clipboard for a page of a file
    area.remove();
    return done;
  }

  function addTools(box) {
    const table = box.querySelector("table");
    const name = document.getElementById(box.getAttribute("aria-labelledby")).textContent;
    table.querySelectorAll("thead th").forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => sort(table, column, heading));
    });
    const tools = document.createElement("div");
    tools.className = "tools";
    const rows = [...table.tBodies[0].rows];
    if (rows.length > LONG) {
      const filter = document.createElement("input");
      filter.type = "search";
      filter.placeholder = `Filter ${rows.length} rows`;
      filter.setAttribute("aria-label", `Filter the rows of ${name}`);
      const count = document.createElement("span");
      count.setAttribute("role", "status");
      filter.addEventListener("input", () => {
        const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        rows.forEach((row) => {
          const text = [...row.children].map((cell) => cell.textContent).join(" ").toLowerCase();
          row.hidden = !wanted.every((word) => text.includes(word));
        });
        const shown = rows.filter((row) => !row.hidden).length;
        count.textContent = wanted.length ? `${shown} of ${rows.length}` : "";
      });
      tools.append(filter, count);
    }
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.setAttribute("aria-label", `Copy the table ${name}`);
    copy.addEventListener("click", async () => {
      const shown = [...table.rows].filter((row) => !row.hidden);
      const lines = shown.map((row) => [...row.children].map((c) => c.textContent).join("\t"));
      const text = lines.join("\n");
      let done = true;
      try { await navigator.clipboard.writeText(text); } catch { done = copied(text); }
      copy.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
    const more = document.createElement("span");
    more.className = "more";
    tools.append(more, copy);
    box.before(tools);
    const headings = [...table.querySelectorAll("thead th")];
    const stays = headings.find((heading) => heading.matches(".deciding"));
    const count = () => { // columns that end behind the box's edge, or behind the column that stays
      const edge = box.getBoundingClientRect().right;
      const cover = stays && stays.getBoundingClientRect();
      const hidden = headings.slice(1).filter((heading) => {
        const { left, right } = heading.getBoundingClientRect();
        const covered = cover && heading !== stays && right > cover.left + 2 && left < cover.right - 2;
        return heading !== stays && (right > edge + 2 || covered);
      });
      more.textContent = hidden.length
        ? `${hidden.length} more column${hidden.length > 1 ? "s" : ""} →` : "";
    };
    box.addEventListener("scroll", count, { passive: true });
    new ResizeObserver(count).observe(box);
  }
  document.querySelectorAll(".table").forEach(addTools);

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
  unpack();
})();
