"use strict";
// Draws what the tables of the page say. Every figure has its table, a place to draw in, and a specification of how
// (html/chart.rs writes them). Nothing is fetched and nothing is kept; without this script the tables say it all.
(() => {
  const root = document.documentElement;
  const trouble = (what) => {
    root.dataset.trouble = [root.dataset.trouble, what].filter(Boolean).join("; ");
  };
  addEventListener("error", (event) => trouble(event.message));
  addEventListener("unhandledrejection", (event) => trouble(String(event.reason)));
  document.addEventListener("securitypolicyviolation", (event) => trouble(`refused: ${event.violatedDirective}`));
  if (typeof Plotly === "undefined") return trouble("the plotting library did not load");

  const css = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  // Names may be anything; the library would take some of it for markup.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const number = (text) => (text === "" ? null : Number(text));
  const last = (list) => list[list.length - 1];
  const sum = (list) => list.reduce((all, one) => all + one, 0);

  // Figures in words, as everywhere in the report.
  const digits = (value) => value.toFixed(Math.abs(value) >= 99.95 || value === 0 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2);
  const scaled = (value, units) => {
    let unit = 0;
    while (Math.abs(value) >= 999.5 && unit + 1 < units.length) [value, unit] = [value / 1000, unit + 1];
    return `${digits(value)}${units[unit]}`;
  };
  const words = {
    time: (us) => scaled(us * 1000, [" ns", " us", " ms", " s"]),
    count: (value) => scaled(value, ["", "k", "M", "G"]),
    percent: (value) => `${digits(value)}%`,
    rate: (value) => scaled(value, [" B/s", " kB/s", " MB/s", " GB/s"]),
  };
  // One unit for all of a linear axis: how many microseconds it has, and its name.
  const timeUnit = (us) => (us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : us >= 1 ? [1, "us"] : [1e-3, "ns"]);

  const read = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
  const csv = (table) => {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
    const line = (row) => [...row.cells].map((cell) => quoted(cell.textContent)).join(",");
    return [...table.rows].map((row) => `${line(row)}\r\n`).join("");
  };

  const font = (size = 12, colour = "soft") => ({ family: getComputedStyle(root).fontFamily, size, color: css(colour) });
  const base = () => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: font(), showlegend: false,
    margin: { l: 56, r: 14, t: 8, b: 36 }, hoverlabel: { bgcolor: css("panel"), bordercolor: css("rule"), font: font(12, "ink") },
    // A finger that scrolls the page must not draw a rectangle.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
  });
  const lineOf = { gridcolor: 0, linecolor: 0, zerolinecolor: 0 };
  const coloured = (axis) => {
    for (const key of Object.keys(lineOf)) axis[key] = css("rule");
    return { zeroline: false, ticks: "", ...axis };
  };
  // Ticks of a logarithmic axis in words, for positions that `at` gives.
  const logTicks = (values, unit, at = (value) => value) => {
    const positive = values.filter((value) => value > 0);
    const [low, high] = [positive.reduce((a, b) => Math.min(a, b), Infinity), positive.reduce((a, b) => Math.max(a, b), 0)];
    const steps = high / low > 2000 ? [1] : [1, 2, 5];
    const ticks = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++)
      for (const step of steps) ticks.push(step * 10 ** decade);
    const near = ticks.filter((tick) => tick >= low / 5 && tick <= high * 5);
    return { tickvals: near.map(at), ticktext: near.map((tick) => words[unit](tick).replace(/\.0+(?=\D|$)/, "")) };
  };
  const axisOf = (axis, values) => {
    const title = axis.label ? { title: { text: plain(axis.label), font: font(), standoff: 8 } } : {};
    if (axis.log) return coloured({ type: "log", ...title, ...logTicks(values, axis.unit) });
    const most = Math.max(axis.at_least, ...[values.reduce((a, b) => Math.max(a, b), 0)]);
    const format = axis.unit === "percent" ? { ticksuffix: "%" } : axis.unit === "rate" ? { tickformat: "~s", ticksuffix: "B/s" } : { tickformat: most < 1000 ? "~g" : "~s" };
    return coloured({ range: [0, most * 1.06 || 1], nticks: 6, ...format, ...title });
  };

  // Where the seconds of blocks lie side by side.
  const clock = (blocks) => {
    const start = new Map(blocks.order.map((block, index) => [String(block), index * blocks.pitch]));
    const end = blocks.pitch * blocks.order.length;
    const place = (row, column) => start.get(row[blocks.block]) + Number(row[column]);
    const step = Math.ceil(blocks.order.length / 10);
    const shown = blocks.order.filter((_, index) => index % step === 0);
    const named = { tickvals: shown.map((block) => start.get(String(block)) + blocks.pitch / 2.1), ticktext: shown.map((block) => `block ${block}`), showgrid: false };
    const axis = blocks.order.length > 1 ? named : { ticksuffix: " s", nticks: 8 };
    const notches = blocks.order.slice(1, 60).map((block) => {
      const x = start.get(String(block)) - blocks.pitch * 0.024;
      return { type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: css("rule"), width: 1, dash: "dot" } };
    });
    const says = (row) => `block ${row[blocks.block]}, ${Number(row[blocks.to]).toFixed(1)} s`;
    return { place, says, notches, axis: coloured({ ...axis, range: [0, end], fixedrange: false }) };
  };
  const bySeries = (rows, column, colours) => colours.map(([name, colour]) => [name, css(colour), rows.filter((row) => row[column] === name)]);

  // Domains from the top down for panels of these heights, with gaps for their headings.
  const domains = (heights, gap = 30) => {
    const all = sum(heights) + gap * (heights.length - 1);
    let top = 1;
    return heights.map((height) => {
      const domain = [Math.max(0, top - height / all), top];
      top = domain[0] - gap / all;
      return domain;
    });
  };
  const heading = (text, y) => ({ text: plain(text), xref: "paper", yref: "paper", x: 0, y, xanchor: "left", yanchor: "bottom", showarrow: false, font: font(12, "ink") });

  const lines = (spec, rows) => {
    const layout = { ...base(), annotations: [], shapes: [] };
    const several = spec.panels.length > 1;
    const blocks = spec.across.kind === "blocks" ? clock(spec.across) : null;
    const column = spec.across.column;
    const placed = (row) => (blocks ? (blocks.place(row, spec.across.from) + blocks.place(row, spec.across.to)) / 2 : spec.across.kind === "figures" ? number(row[column]) : row[column]);
    const where = (row) => (blocks ? blocks.says(row) : spec.across.kind === "figures" ? words[spec.across.axis.unit](number(row[column])) : row[column]);
    const series = bySeries(rows, spec.series, spec.colours);
    const traces = [];
    const spaces = domains(spec.panels.map((panel) => panel.height));
    spec.panels.forEach((panel, index) => {
      const nth = index ? index + 1 : "";
      for (const [name, colour, own] of series) {
        const trace = { x: [], y: [], text: [], yaxis: `y${nth}`, name: plain(name), mode: spec.marks ? "lines+markers" : "lines", line: { color: colour, width: 1.7 }, marker: { color: colour, size: 7 }, hovertemplate: "%{text}<extra></extra>" };
        own.forEach((row, place) => {
          // Blocks are not joined with one another.
          if (blocks && place && own[place - 1][spec.across.block] !== row[spec.across.block]) [trace.x, trace.y, trace.text].forEach((list) => list.push(null));
          const value = number(row[panel.column]);
          trace.x.push(placed(row));
          trace.y.push(value);
          trace.text.push(value === null ? "" : `${plain(name)}<br>${where(row)}: ${words[panel.axis.unit](value)}`);
        });
        // A line of one point alone would not be seen.
        if (own.length <= 2 * new Set(blocks ? own.map((row) => row[spec.across.block]) : [0]).size) trace.mode = "lines+markers";
        traces.push(trace);
      }
      const values = rows.map((row) => number(row[panel.column])).filter((value) => value !== null);
      layout[`yaxis${nth}`] = { ...axisOf(several ? { ...panel.axis, label: "" } : panel.axis, values), domain: spaces[index], nticks: Math.max(2, Math.round(panel.height / 34)) };
      if (several) layout.annotations.push(heading(panel.axis.label, spaces[index][1]));
    });
    const across = spec.across;
    layout.xaxis = blocks ? blocks.axis : across.kind === "figures" ? axisOf(across.axis, rows.map((row) => number(row[column]))) : coloured({ type: "category", title: { text: plain(across.label), font: font() } });
    layout.xaxis.anchor = several ? `y${spec.panels.length}` : "y";
    if (blocks) layout.shapes.push(...blocks.notches);
    layout.height = sum(spec.panels.map((panel) => panel.height)) + 30 * (spec.panels.length - 1) + 66;
    layout.margin.t = several ? 26 : 10;
    return { traces, layout };
  };

  const bars = (spec, rows, width) => {
    const layout = { ...base(), annotations: [], shapes: [] };
    const labels = spec.labels;
    const own = new Map(labels.map((label) => [label.name, rows.filter((row) => row[spec.name] === label.name)]));
    // Where each row's bar begins and ends, and its interval.
    const bar = (row, list) => {
      const from = spec.from === null ? sum(list.slice(0, list.indexOf(row)).map((before) => number(before[spec.value]))) : number(row[spec.from]);
      const ends = spec.ends ? spec.ends.map((end) => number(row[end])) : [null, null];
      return { name: row[spec.name], part: row[spec.series], from, to: from + number(row[spec.value]), low: ends[0], high: ends[1] };
    };
    const all = [...own.values()].flatMap((list) => list.map((row) => bar(row, list)));
    const reach = all.flatMap((one) => [one.to, one.low, one.high]).filter((value) => value !== null);
    const [least, most] = [reach.reduce((a, b) => Math.min(a, b), 0), reach.reduce((a, b) => Math.max(a, b), 0)];
    const [size, unit] = timeUnit(Math.max(most, -least));
    // Beneath one another where one line is too narrow for a name and its words.
    const narrow = labels.some((label) => (label.name.length + label.words.length + 2) * 6.6 > width - 40);
    const pitch = narrow ? 60 : 44;
    const at = new Map(labels.map((label, index) => [label.name, labels.length - 1 - index]));
    const traces = bySeries(all, "part", spec.colours).map(([name, colour, list]) => ({
      type: "bar", orientation: "h", name: plain(name), width: 18 / pitch,
      y: list.map((one) => at.get(one.name)), base: list.map((one) => one.from / size), x: list.map((one) => (one.to - one.from) / size),
      marker: { color: colour, line: { color: css("paper"), width: spec.name === spec.series ? 0 : 1 } },
      text: list.map((one) => `${plain(one.name)}${one.part === one.name ? "" : `<br>${plain(one.part)}`}: ${words.time(one.to - one.from)}`),
      textposition: "none", hovertemplate: "%{text}<extra></extra>",
    }));
    const sure = all.filter((one) => one.low !== null);
    traces.push({
      type: "scatter", mode: "markers", hoverinfo: "skip", marker: { size: 1, color: css("ink") }, x: sure.map((one) => one.to / size), y: sure.map((one) => at.get(one.name)),
      error_x: { type: "data", symmetric: false, array: sure.map((one) => (one.high - one.to) / size), arrayminus: sure.map((one) => (one.to - one.low) / size), color: css("ink"), thickness: 1.5, width: 4 },
    });
    labels.forEach((label) => {
      const text = `<b>${plain(label.name)}</b>${narrow ? "<br>" : "  "}${plain(label.words)}`;
      layout.annotations.push({ text, x: 0, xref: "paper", xanchor: "left", y: at.get(label.name), yref: "y", yanchor: "bottom", yshift: 9, showarrow: false, align: "left", font: font(12, "ink"), bgcolor: css("paper"), borderpad: 0 });
      if (label.beneath === undefined) return;
      const x = own.get(label.name).map((row) => bar(row, [row]).from / size)[0];
      layout.shapes.push({ type: "line", layer: "below", x0: x, x1: x, y0: at.get(labels[label.beneath].name), y1: at.get(label.name), line: { color: css("soft"), width: 1, dash: "dot" } });
    });
    const span = most - least || 1;
    layout.xaxis = coloured({ range: [(least && least - span * 0.04) / size, (most + span * 0.04) / size], nticks: 7, title: { text: unit, font: font(), standoff: 6 }, zeroline: true });
    layout.xaxis.zerolinecolor = css("soft");
    layout.yaxis = { visible: false, fixedrange: true, range: [-0.5, labels.length - 0.5 + (narrow ? 0.35 : 0.2)] };
    layout.barmode = "overlay";
    layout.height = labels.length * pitch + 48;
    layout.margin = { l: 14, r: 14, t: 4, b: 38 };
    return { traces, layout };
  };

  const heat = (spec, rows) => {
    const layout = { ...base(), annotations: [] };
    const blocks = clock(spec.across);
    const logs = spec.edges.map(Math.log10);
    const counted = (row, bin) => number(row[spec.first + bin]);
    const all = rows.flatMap((row) => row.slice(spec.first).filter(Boolean).map(Number));
    const [least, most] = [all.reduce((a, b) => Math.min(a, b), Infinity), all.reduce((a, b) => Math.max(a, b), 1)];
    const spaces = domains(spec.colours.map(() => 96));
    const decades = [...Array(Math.ceil(Math.log10(most)) + 1).keys()];
    const bin = logs.slice(1).map((_, index) => `${words.time(spec.edges[index])} to ${words.time(spec.edges[index + 1])}`);
    const traces = bySeries(rows, spec.series, spec.colours).map(([name, , own], index) => {
      // Columns with the gaps between blocks.
      const [x, columns] = [[], []];
      own.forEach((row, place) => {
        const from = blocks.place(row, spec.across.from);
        if (place && from > last(x) + 1e-9) columns.push(null);
        if (!place || from > last(x) + 1e-9) x.push(from);
        x.push(blocks.place(row, spec.across.to));
        columns.push(row);
      });
      const nth = index ? index + 1 : "";
      layout[`yaxis${nth}`] = coloured({ domain: spaces[index], range: [logs[0], last(logs)], showgrid: false, ...logTicks(spec.edges, "time", Math.log10) });
      layout.annotations.push(heading(name, spaces[index][1]));
      return {
        type: "heatmap", name: plain(name), yaxis: `y${nth}`, x, y: logs, zmin: Math.log10(least), zmax: Math.log10(most) + 1e-3,
        z: bin.map((_, b) => columns.map((row) => (row && counted(row, b) ? Math.log10(counted(row, b)) : null))),
        text: bin.map((range, b) => columns.map((row) => (row && counted(row, b) ? `${plain(name)}<br>${blocks.says(row)}, ${range}: ${words.count(counted(row, b))} I/Os` : ""))),
        hoverongaps: false, hovertemplate: "%{text}<extra></extra>",
        colorscale: [[0, css("h0")], [0.5, css("h1")], [1, css("h2")]], showscale: index === 0,
        colorbar: { thickness: 10, len: 1, outlinewidth: 0, tickvals: decades, ticktext: decades.map((power) => words.count(10 ** power).replace(/\.0+/, "")), title: { text: "I/Os", font: font(), side: "top" } },
      };
    });
    layout.xaxis = { ...blocks.axis, anchor: `y${spec.colours.length === 1 ? "" : spec.colours.length}` };
    layout.height = spec.colours.length * 126 + 36;
    layout.margin.t = 26;
    return { traces, layout };
  };

  const kinds = { lines, bars, heat };
  const figures = [...document.querySelectorAll("figure[data-file]")].map((element) => ({
    element, place: element.querySelector(".plot"), table: element.querySelector("table"), drawn: false,
    spec: JSON.parse(element.querySelector("script").textContent),
  }));
  const draw = (figure) => {
    if (figure.drawn) return;
    figure.drawn = true;
    figure.rows ??= read(figure.table);
    const width = figure.place.clientWidth;
    const { traces, layout } = kinds[figure.spec.kind](figure.spec, figure.rows, width);
    figure.place.style.height = `${layout.height}px`;
    Plotly.react(figure.place, traces, { ...layout, width }, { displayModeBar: false }).catch((error) => trouble(String(error)));
  };
  const download = (figure) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(figure.table)], { type: "text/csv" }));
    link.download = `${figure.element.dataset.file}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  for (const figure of figures) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "CSV";
    button.setAttribute("aria-label", `${figure.element.querySelector("figcaption b").textContent}: download as CSV`);
    button.addEventListener("click", () => download(figure));
    figure.element.querySelector("details").before(button);
  }
  root.classList.add("drawn");

  // What is looked at is drawn, and nothing else: a long report has hundreds of pictures.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(figures.find((figure) => figure.place === entry.target));
    root.dataset.ready ??= Math.round(performance.now());
  }, { rootMargin: "300px" });
  const watch = () => figures.forEach((figure) => { seen.unobserve(figure.place); seen.observe(figure.place); });
  const again = () => { figures.forEach((figure) => { figure.drawn = false; }); watch(); };
  const all = () => figures.forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = innerWidth;
  addEventListener("resize", () => { if (width !== innerWidth && !root.classList.contains("paper")) { width = innerWidth; again(); } });
  // Paper is white, of a known width, and has all pictures.
  addEventListener("beforeprint", () => { root.classList.add("paper"); again(); all(); });
  addEventListener("afterprint", () => { root.classList.remove("paper"); again(); });
  watch();
  // For those who keep the page as a picture: #all draws everything at once.
  if (location.hash === "#all") all();
  if (figures.length === 0) root.dataset.ready = Math.round(performance.now());
})();
