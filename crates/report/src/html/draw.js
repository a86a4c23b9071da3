"use strict";
// From a table's rows and a specification (html/chart.rs writes both) to what the plotting library draws:
// Draw.lines, Draw.bars, Draw.heat, Draw.curve, Draw.course, Draw.points and Draw.map give {traces, layout}. Numbers in specifications are places of columns.
const Draw = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // Names may be anything, and the library would take some of it for markup.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const number = (text) => (text === "" ? null : Number(text));
  const known = (list) => list.filter((value) => value !== null);
  const sum = (list) => list.reduce((all, one) => all + one, 0);
  // Not Math.min(...list), whose arguments are limited.
  const least = (list, start = Infinity) => list.reduce((a, b) => Math.min(a, b), start);
  const most = (list, start = -Infinity) => list.reduce((a, b) => Math.max(a, b), start);
  const nth = (index) => (index ? index + 1 : "");

  // Figures in words, as everywhere in the report.
  const digits = (value) => {
    const size = Math.abs(value);
    return value.toFixed(size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : 2);
  };
  const scaled = (value, units) => {
    let unit = 0;
    while (Math.abs(value) >= 999.5 && unit + 1 < units.length) [value, unit] = [value / 1000, unit + 1];
    return digits(value) + units[unit];
  };
  const words = {
    time: (us) => scaled(us * 1000, [" ns", " us", " ms", " s"]),
    count: (value) => scaled(value, ["", "k", "M", "G"]),
    percent: (value) => `${digits(value)}%`,
    rate: (value) => scaled(value, [" B/s", " kB/s", " MB/s", " GB/s"]),
    bits: (value) => scaled(value, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s"]),
    ordinal: String,
  };
  const round = (value, unit) => words[unit](value).replace(/\.0+(?=\D|$)/, "");
  // One unit for all of a linear axis: how many microseconds it has, and its name.
  const timeUnit = (us) => (us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : us >= 1 ? [1, "us"] : [1e-3, "ns"]);

  const font = (colour = "soft") => ({
    family: getComputedStyle(document.documentElement).fontFamily, size: 12, color: css(colour),
  });
  const base = () => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: font(), showlegend: false, annotations: [], shapes: [],
    margin: { l: 56, r: 14, t: 10, b: 36 },
    hoverlabel: { bgcolor: css("panel"), bordercolor: css("rule"), font: font("ink") },
    // A finger that scrolls the page must not draw a rectangle.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
  });
  const axisWith = (settings) => ({
    gridcolor: css("rule"), linecolor: css("rule"), zerolinecolor: css("soft"), zeroline: false, ticks: "",
    // Margins grow to the longest name or figure.
    automargin: true, ...settings,
  });
  const titled = (text) => (text ? { title: { text: plain(text), font: font(), standoff: 6 } } : {});

  // Ticks of a logarithmic axis in words, where `at` places them.
  const logTicks = (values, unit, at = (value) => value) => {
    const positive = values.filter((value) => value > 0);
    const [low, high] = [least(positive), most(positive)];
    // Between values that are close there may be no 1, 2 or 5.
    if (high / low < 4) {
      const step = 10 ** Math.floor(Math.log10((high - low) / 2 || low));
      const steps = [1, 2, 5, 10, 20].map((times) => times * step);
      const wide = steps.find((step) => (high - low) / step <= 5) ?? step;
      const first = Math.max(1, Math.floor(low / wide) - 1);
      const near = [...Array(8).keys()].map((index) => (first + index) * wide);
      return { tickvals: near.map(at), ticktext: near.map((tick) => round(tick, unit)) };
    }
    const steps = high / low > 2000 ? [1] : [1, 2, 5];
    const ticks = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++)
      ticks.push(...steps.map((step) => step * 10 ** decade));
    const near = ticks.filter((tick) => tick >= low / 5 && tick <= high * 5);
    return { tickvals: near.map(at), ticktext: near.map((tick) => round(tick, unit)) };
  };
  const axisOf = (axis, values) => {
    if (axis.unit === "ordinal") {
      const [first, last] = [least(values), most(values)];
      const room = Math.max(0.5, (last - first) * 0.03);
      return axisWith({ range: [first - room, last + room], tickformat: "d", nticks: Math.min(12, last - first + 2), ...titled(axis.label) });
    }
    if (axis.log) return axisWith({ type: "log", ...titled(axis.label), ...logTicks(values, axis.unit) });
    const end = most(values, axis.at_least) * 1.06 || 1;
    const suffix = { percent: "%", rate: "B/s", bits: "bit/s" }[axis.unit] ?? "";
    return axisWith({ range: [0, end], tickformat: end < 1000 ? "~g" : "~s", ticksuffix: suffix, ...titled(axis.label) });
  };

  // Lays the seconds of rounds out side by side.
  const clock = (spec, width) => {
    const start = new Map(spec.order.map((round, index) => [String(round), index * spec.pitch]));
    const place = (row, column) => start.get(row[spec.round]) + Number(row[column]);
    const [from, to] = [(row) => place(row, spec.from), (row) => place(row, spec.to)];
    const says = (row) => `round ${row[spec.round]}, ${Number(row[spec.to]).toFixed(1)} s`;
    const step = Math.ceil((spec.order.length * 66) / (width - 140));
    const shown = spec.order.filter((_, index) => index % step === 0);
    const middle = (round) => start.get(String(round)) + spec.pitch / 2.1;
    const named = { tickvals: shown.map(middle), ticktext: shown.map((round) => `round ${round}`), showgrid: false, tickangle: 0 };
    const ticks = spec.order.length > 1 ? named : { ticksuffix: " s", nticks: 8 };
    const notches = spec.order.slice(1, 60).map((round) => {
      const x = start.get(String(round)) - spec.pitch * 0.024;
      const line = { color: css("rule"), width: 1, dash: "dot" };
      return { type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line };
    });
    return { from, to, says, notches, axis: axisWith({ ...ticks, range: [0, spec.pitch * spec.order.length] }) };
  };
  // Each series with its colour and its own rows.
  const bySeries = (rows, column, colours) =>
    colours.map(([name, colour]) => [name, css(colour), rows.filter((row) => row[column] === name)]);
  // From the top down, panels of these heights with room for their headings.
  const GAP = 30;
  const domains = (heights) => {
    const all = sum(heights) + GAP * (heights.length - 1);
    let top = 1;
    return heights.map((height) => {
      const domain = [Math.max(0, top - height / all), top];
      top = domain[0] - GAP / all;
      return domain;
    });
  };
  const heading = (text, y) => ({
    text: plain(text), xref: "paper", yref: "paper", x: 0, y, xanchor: "left", yanchor: "bottom", showarrow: false, font: font("ink"),
  });

  // The intervals of a panel's figures; unknown ones are not drawn.
  const interval = (rows, panel, colour) => {
    if (!panel.ends) return {};
    const [array, arrayminus] = panel.ends.map((end) => rows.map((row) => {
      const far = number(row[end]);
      return far === null ? null : Math.abs(far - number(row[panel.column]));
    })).reverse();
    return { error_y: { type: "data", symmetric: false, array, arrayminus, color: colour, thickness: 1.2, width: 4 } };
  };

  const lines = (spec, rows, width) => {
    const layout = base();
    const across = spec.across;
    const rounds = across.kind === "rounds" ? clock(across, width) : null;
    const at = {
      rounds: (row) => (rounds.from(row) + rounds.to(row)) / 2, figures: (row) => number(row[across.column]), words: (row) => row[across.column],
    }[across.kind];
    const where = {
      rounds: (row) => rounds.says(row), figures: (row) => words[across.axis.unit](at(row)), words: (row) => plain(at(row)),
    }[across.kind];
    const several = spec.panels.length > 1;
    const series = bySeries(rows, spec.series, spec.colours);
    const spaces = domains(spec.panels.map((panel) => panel.height));
    const traces = spec.panels.flatMap((panel, index) => {
      // With the ends of intervals, which may reach beyond all figures.
      const values = known(rows.flatMap((row) => [panel.column, ...(panel.ends ?? [])].map((column) => number(row[column]))));
      const axis = axisOf({ ...panel.axis, label: several ? "" : panel.axis.label }, values);
      layout[`yaxis${nth(index)}`] = { ...axis, domain: spaces[index], nticks: Math.max(2, Math.round(panel.height / 34)) };
      if (several) layout.annotations.push(heading(panel.axis.label, spaces[index][1]));
      return series.map(([name, colour, own]) => {
        const [x, y, text] = [[], [], []];
        own.forEach((row, place) => {
          // Rounds are not joined with one another.
          if (rounds && place && own[place - 1][across.round] !== row[across.round]) [x, y, text].forEach((list) => list.push(null));
          const value = number(row[panel.column]);
          x.push(at(row));
          y.push(value);
          text.push(value === null ? "" : `${plain(name)}<br>${where(row)}: ${words[panel.axis.unit](value)}`);
        });
        // One point alone has no line that could be seen.
        const alone = rounds && own.length <= new Set(own.map((row) => row[across.round])).size;
        return {
          x, y, text, yaxis: `y${nth(index)}`, name: plain(name), mode: spec.marks || alone ? "lines+markers" : "lines",
          ...interval(own, panel, colour), line: { color: colour, width: 1.7 }, marker: { color: colour, size: 7 }, hovertemplate: "%{text}<extra></extra>",
        };
      });
    });
    if (across.kind === "words") layout.xaxis = axisWith({ type: "category", ...titled(across.label) });
    else layout.xaxis = rounds ? rounds.axis : axisOf(across.axis, rows.map(at));
    layout.xaxis.anchor = `y${nth(spec.panels.length - 1)}`;
    if (rounds) layout.shapes.push(...rounds.notches);
    layout.margin.t = several ? 26 : 10;
    layout.height = sum(spec.panels.map((panel) => panel.height + GAP)) + 36;
    return { traces, layout };
  };

  const bars = (spec, rows, width) => {
    const layout = base();
    const labels = spec.labels;
    // Each row's bar: where it begins and ends, and its interval. Without a column for the beginning, parts of one name add up.
    const sums = new Map();
    const all = rows.map((row) => {
      const name = row[spec.name];
      const from = spec.from === null ? sums.get(name) ?? 0 : number(row[spec.from]);
      const to = from + number(row[spec.value]);
      sums.set(name, to);
      const [low, high] = spec.ends ? spec.ends.map((end) => number(row[end])) : [null, null];
      return { name, part: row[spec.series], from, to, low, high };
    });
    const reach = known(all.flatMap((bar) => [bar.to, bar.low, bar.high]));
    const [low, high] = [least(reach, 0), most(reach, 0)];
    const [size, unit] = timeUnit(Math.max(high, -low));
    // A name and its words stand beneath one another where a line is too narrow for both.
    const narrow = labels.some((label) => (label.name.length + label.words.length + 2) * 6.6 > width - 40);
    const pitch = narrow ? 60 : 44;
    const level = new Map(labels.map((label, index) => [label.name, labels.length - 1 - index]));
    const says = (bar) => [bar.name, bar.part].filter((word, index) => !index || word !== bar.name).map(plain).join("<br>");
    const traces = bySeries(all, "part", spec.colours).map(([name, colour, own]) => ({
      type: "bar", orientation: "h", name: plain(name), width: 18 / pitch, textposition: "none", hovertemplate: "%{text}<extra></extra>",
      y: own.map((bar) => level.get(bar.name)), base: own.map((bar) => bar.from / size), x: own.map((bar) => (bar.to - bar.from) / size),
      marker: { color: colour, line: { color: css("paper"), width: spec.name === spec.series ? 0 : 1 } },
      text: own.map((bar) => `${says(bar)}: ${words.time(bar.to - bar.from)}`),
    }));
    const sure = all.filter((bar) => bar.low !== null);
    traces.push({
      type: "scatter", mode: "markers", hoverinfo: "skip", marker: { size: 1, color: css("ink") },
      x: sure.map((bar) => bar.to / size), y: sure.map((bar) => level.get(bar.name)),
      error_x: {
        type: "data", symmetric: false, color: css("ink"), thickness: 1.5, width: 4,
        array: sure.map((bar) => (bar.high - bar.to) / size), arrayminus: sure.map((bar) => (bar.to - bar.low) / size),
      },
    });
    for (const label of labels) {
      const y = level.get(label.name);
      const text = `<b>${plain(label.name)}</b>${narrow ? "<br>" : "  "}${plain(label.words)}`;
      const above = { xref: "paper", x: 0, xanchor: "left", yref: "y", y, yanchor: "bottom", yshift: 9, align: "left", showarrow: false };
      layout.annotations.push({ text, ...above, font: font("ink"), bgcolor: css("paper"), borderpad: 0 });
      if (label.beneath === undefined) continue;
      const x = all.find((bar) => bar.name === label.name).from / size;
      const line = { color: css("soft"), width: 1, dash: "dot" };
      layout.shapes.push({ type: "line", layer: "below", x0: x, x1: x, y0: level.get(labels[label.beneath].name), y1: y, line });
    }
    const room = (high - low || 1) * 0.04;
    layout.xaxis = axisWith({ range: [(low && low - room) / size, (high + room) / size], nticks: 7, zeroline: true, ...titled(unit) });
    layout.yaxis = { visible: false, fixedrange: true, range: [-0.5, labels.length - 0.5 + (narrow ? 0.35 : 0.2)] };
    layout.barmode = "overlay";
    layout.margin = { l: 14, r: 14, t: 4, b: 38 };
    layout.height = labels.length * pitch + 48;
    return { traces, layout };
  };

  const heat = (spec, rows, width) => {
    const layout = base();
    const rounds = clock(spec.across, width);
    const logs = spec.edges.map(Math.log10);
    const counted = (row, bin) => number(row[spec.first + bin]);
    const all = rows.flatMap((row) => known(row.slice(spec.first).map(number)));
    const decades = [...Array(Math.ceil(Math.log10(most(all, 1))) + 1).keys()];
    const bins = logs.slice(1).map((_, bin) => `${words.time(spec.edges[bin])} to ${words.time(spec.edges[bin + 1])}`);
    const spaces = domains(spec.colours.map(() => 96));
    const traces = bySeries(rows, spec.series, spec.colours).map(([name, , own], index) => {
      // Edges of columns, and what lies between each two: an interval, or nothing between rounds.
      const [x, columns] = [[], []];
      for (const row of own) {
        const gap = x.length > 0 && rounds.from(row) > x[x.length - 1] + 1e-9;
        if (gap) columns.push(null);
        if (gap || x.length === 0) x.push(rounds.from(row));
        x.push(rounds.to(row));
        columns.push(row);
      }
      const cells = (of) => bins.map((_, bin) => columns.map((row) => (row && counted(row, bin) ? of(row, bin) : null)));
      const ticks = logTicks(spec.edges, "time", Math.log10);
      layout[`yaxis${nth(index)}`] = axisWith({ domain: spaces[index], range: [logs[0], logs[bins.length]], showgrid: false, ...ticks });
      layout.annotations.push(heading(name, spaces[index][1]));
      return {
        type: "heatmap", name: plain(name), yaxis: `y${nth(index)}`, x, y: logs,
        z: cells((row, bin) => Math.log10(counted(row, bin))), zmin: Math.log10(least(all)), zmax: Math.log10(most(all, 1)) + 1e-3,
        text: cells((row, bin) => `${plain(name)}<br>${rounds.says(row)}, ${bins[bin]}: ${words.count(counted(row, bin))} I/Os`),
        hoverongaps: false, hovertemplate: "%{text}<extra></extra>",
        colorscale: [[0, css("h0")], [0.5, css("h1")], [1, css("h2")]], showscale: index === 0,
        colorbar: {
          thickness: 10, len: 1, outlinewidth: 0, tickvals: decades, ticktext: decades.map((power) => round(10 ** power, "count")),
          title: { text: "I/Os", font: font(), side: "top" },
        },
      };
    });
    layout.xaxis = { ...rounds.axis, anchor: `y${nth(spec.colours.length - 1)}` };
    layout.margin.t = 26;
    layout.height = spec.colours.length * (96 + GAP) + 36;
    return { traces, layout };
  };

  // Points of two figures; what is said of some of them stands beside them.
  const curve = (spec, rows, width) => {
    const across = { kind: "figures", column: spec.x, axis: spec.across };
    const panels = [{ column: spec.y, axis: spec.up, height: 300, ends: null }];
    const drawn = lines({ ...spec, across, panels, marks: true }, rows, width);
    // Beside ticks with a unit there is no room for the axis's name.
    drawn.layout.margin.l = 74;
    const at = (axis, value) => (axis.log ? Math.log10(value) : value);
    for (const row of rows.filter((row) => row[spec.note] !== "" && row[spec.x] !== "" && row[spec.y] !== "")) {
      drawn.layout.annotations.push({
        x: at(spec.across, number(row[spec.x])), y: at(spec.up, number(row[spec.y])), text: plain(row[spec.note]),
        showarrow: true, arrowhead: 2, arrowsize: 1, arrowwidth: 1.2, arrowcolor: css("ink"), ax: -38, ay: -30, font: font("ink"),
      });
    }
    return drawn;
  };

  // Lines over seconds; events are marks through all panels, and spans are shaded.
  const course = (spec, rows, width) => {
    const across = { kind: "figures", column: spec.x, axis: spec.across };
    const drawn = lines({ ...spec, across, marks: spec.across.unit === "ordinal" }, rows, width);
    const through = { xref: "x", yref: "paper", y0: 0, y1: 1 };
    for (const [from, to] of spec.shaded) {
      drawn.layout.shapes.push({ type: "rect", ...through, x0: from, x1: to, fillcolor: css("soft"), opacity: 0.25, line: { width: 0 }, layer: "below" });
    }
    const middle = sum(drawn.layout.xaxis.range) / 2;
    spec.events.forEach(([at, name], index) => {
      drawn.layout.shapes.push({ type: "line", ...through, x0: at, x1: at, line: { color: css("ink"), width: 1.2, dash: "dash" } });
      drawn.layout.annotations.push({
        x: at, y: 1, xref: "x", yref: "paper", xanchor: at > middle ? "right" : "left", yanchor: "top", yshift: -15 * (index % 6),
        text: plain(name), showarrow: false, font: font("ink"),
      });
    });
    return drawn;
  };

  // One named point a row. A name leans into the middle of the picture, further out where one of a neighbour is in its way.
  const points = (spec, rows, width) => {
    const layout = base();
    const there = rows.filter((row) => row[spec.x] !== "" && row[spec.y] !== "");
    const xs = there.map((row) => number(row[spec.x]));
    const place = spec.across.log ? Math.log10 : (value) => value;
    const [low, high] = [least(xs.map(place)), most(xs.map(place))];
    const room = (high - low) * 0.12 || 0.5;
    layout.xaxis = { ...axisOf(spec.across, xs), range: [low - room / 2, high + 2 * room] };
    const up = axisOf(spec.up, there.map((row) => number(row[spec.y])));
    layout.yaxis = { ...up, range: [-0.04 * up.range[1], up.range[1]], zeroline: true };
    const pixels = (value) => ((place(value) - low + room / 2) / (high - low + 2.5 * room)) * (width - 88);
    const traces = bySeries(there, spec.series, spec.colours).map(([, colour, rows]) => ({
      type: "scatter", mode: "markers", x: rows.map((row) => number(row[spec.x])), y: rows.map((row) => number(row[spec.y])),
      marker: { color: colour, size: 9 },
      customdata: rows.map((row) => `${plain(row[spec.name])}: ${words[spec.across.unit](number(row[spec.x]))}, ${words[spec.up.unit](number(row[spec.y]))}`),
      hovertemplate: "%{customdata}<extra></extra>",
    }));
    const ends = new Map();
    for (const row of [...there].sort((a, b) => number(a[spec.x]) - number(b[spec.x]))) {
      const [x, y] = [number(row[spec.x]), number(row[spec.y])];
      const down = y > up.range[1] / 2;
      const at = Math.max(pixels(x) + 6, (ends.get(y) ?? -Infinity) + 17);
      ends.set(y, at);
      layout.annotations.push({
        x: place(x), y, text: plain(row[spec.name]), font: font("ink"), textangle: down ? 35 : -35, xanchor: "left", yanchor: down ? "top" : "bottom",
        showarrow: true, arrowhead: 0, arrowwidth: 0.8, arrowcolor: css("soft"), standoff: 5, ax: at - pixels(x), ay: down ? 14 : -14,
      });
    }
    layout.margin = { l: 64, r: 24, t: 14, b: 44 };
    layout.height = 420;
    return { traces, layout };
  };

  // A figure by two words: one field each, with its figure in it where there is room.
  const map = (spec, rows, width) => {
    const layout = base();
    const distinct = (column) => [...new Set(rows.map((row) => row[column]))];
    const [across, up] = [distinct(spec.x), distinct(spec.y)];
    const cell = (x, y) => rows.find((row) => row[spec.x] === x && row[spec.y] === y);
    const cells = (of) => up.map((y) => across.map((x) => {
      const row = cell(x, y);
      return row && row[spec.value] !== "" ? of(number(row[spec.value]), x, y) : null;
    }));
    const room = (width - 130) / across.length;
    const short = (value) => digits(spec.unit === "rate" ? value / 1e6 : value);
    const trace = {
      type: "heatmap", x: across, y: up, z: cells((value) => value), xgap: 1, ygap: 1, hoverongaps: false,
      text: cells(short).map((row) => row.map((text) => text ?? "")), ...(room >= 30 ? { texttemplate: "%{text}", textfont: { size: 10 } } : {}),
      customdata: cells((value, x, y) => `${plain(y)} / ${plain(x)}: ${words[spec.unit](value)}`), hovertemplate: "%{customdata}<extra></extra>",
      colorscale: [[0, css("h0")], [0.5, css("h1")], [1, css("h2")]], zmin: 0,
      colorbar: { thickness: 10, len: 1, outlinewidth: 0, tickformat: "~s", ticksuffix: spec.unit === "rate" ? "B/s" : "", nticks: 6 },
    };
    layout.xaxis = axisWith({ type: "category", showgrid: false, tickangle: 0, ...titled(spec.across) });
    layout.yaxis = axisWith({ type: "category", showgrid: false, ...titled(spec.up) });
    layout.margin = { l: 64, r: 14, t: 10, b: 44 };
    layout.height = 400;
    return { traces: [trace], layout };
  };

  return { lines, bars, heat, curve, course, points, map };
})();
